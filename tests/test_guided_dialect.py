"""The `guided_json` dialect: what is said, what may be replied at each point of a task, and what is kept."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fsm_agent import Registry, Tool, tool
from fsm_agent.dialects import GuidedJson, JsonAction, Native, dialect_for
from fsm_agent.dialects.base import Answer, Calls, Done, Prompt, Purpose
from fsm_agent.dialects.guided_texts import GUIDES, Guide
from fsm_agent.effects import Call, Replied, Result
from fsm_agent.history import Block, block, task_block
from fsm_agent.language import EN, ZH, Texts
from fsm_agent.tools.signature import digest, signature
from tests.benchmarks import local_more_tools as m
from tests.benchmarks import local_tools as t
from tests.core.validity import wrong_prompt

GUIDED = GuidedJson()


@dataclass(frozen=True)
class Moment:
    """A task at some point: what was called so far, and what that gave."""

    task: str
    tools: tuple[Any, ...]
    texts: Texts = EN
    blocks: tuple[Block, ...] = ()
    done: tuple[Done, ...] = ()

    def after(self, name: str, given: dict[str, Any], text: str, *, ok: bool = True, executed: bool = True) -> Moment:
        """The moment after this call."""
        call = Call(id="c", name=name, tool=name, arguments=given, signature=signature(name, given))
        result = Result(call_id="c", tool=name, ok=ok, text=text, digest=digest(text), executed=executed)
        said = json.dumps({"thought": "so", "solved": False, "action": name, "action_input": given})
        kept = GUIDED.keep_round(Replied(at=0.0, text=said), [call], [result], self.texts)
        done = (*self.done, Done(call, result)) if ok else self.done
        return replace(self, blocks=(*self.blocks, block("round", *kept)), done=done)

    def prompt(self, purpose: Purpose = "plan") -> Prompt:
        """What the dialect is asked with."""
        registry = Registry([one if isinstance(one, Tool) else tool(idempotent=True)(one) for one in self.tools])
        tools = tuple(registry) if purpose == "plan" else ()
        return Prompt(
            system=self.texts.system,
            blocks=(task_block(self.task), *self.blocks),
            tools=tools,
            purpose=purpose,
            texts=self.texts,
            task=self.task,
            done=self.done,
        )

    def variants(self, purpose: Purpose = "plan") -> dict[str, dict[str, Any]]:
        """The possible replies by action."""
        form = GUIDED.response_format(self.prompt(purpose))
        assert form is not None
        schema = form["json_schema"]["schema"]
        return {one["properties"]["action"]["const"]: one for one in schema.get("anyOf", [schema])}

    def values(self, action: str, name: str) -> list[Any] | None:
        """The values that an argument is held to, None for any."""
        found: list[Any] | None = self.variants()[action]["properties"]["action_input"]["properties"][name].get("enum")
        return found

    def given(self, action: str) -> list[dict[str, Any]]:
        """The arguments that an action can have, where each combination is spelt out."""
        forms = self.variants()[action]["properties"]["action_input"]["anyOf"]
        return [{name: one["enum"][0] for name, one in form["properties"].items()} for form in forms]

    def asked(self, purpose: Purpose = "plan") -> str:
        """The last message."""
        messages = GUIDED.compose(self.prompt(purpose))
        assert wrong_prompt(messages) == []
        return str(messages[-1].content)


WEATHER = Moment("What is the weather in the capital of Veloria?", (t.get_weather, t.get_capital))
FAILED = WEATHER.after("get_weather", {"city": "Veloria"}, "unknown city 'Veloria'; known: tamsin", ok=False)
SUM = Moment("Add 12 and 8, then multiply the sum by 7.", (t.add, t.multiply))


# ---------------------------------------------------------------- what may be replied


def test_there_is_no_answer_before_a_tool_was_tried() -> None:
    """A small model would answer at once, with something invented."""
    assert set(WEATHER.variants()) == {"get_weather", "get_capital"}
    known = WEATHER.after("get_capital", {"country": "Veloria"}, "Tamsin")
    assert "FINISH" in known.after("get_weather", {"city": "Tamsin"}, "rain").variants()


def test_there_is_no_answer_before_a_tool_that_the_task_speaks_of_was_tried() -> None:
    """Half way is not solved: a look-up shares words with the task that no tool called so far accounts for."""
    half = WEATHER.after("get_capital", {"country": "Veloria"}, "Tamsin")
    assert set(half.variants()) == {"get_weather"}
    twice = half.after("get_capital", {"country": "Veloria"}, "Tamsin")
    assert set(twice.variants()) == {"get_weather"}, "nor after a repeat"
    tried = half.after("get_weather", {"city": "Nowhere"}, "unknown city", ok=False)
    assert set(tried.variants()) != {"get_weather"}, "one that failed was tried"
    three = Moment(
        "Look up the price of a desk and reverse the text, then count the words.",
        (t.get_price, t.reverse_text, t.count_words),
    )
    several = three.after("get_price", {"product": "desk"}, "340.0")
    assert set(several.variants()) == {"get_price", "reverse_text", "count_words"}, (
        "which of two is first, the model says"
    )
    forbidden = replace(half, task="What is the capital of Veloria? I do not want the weather.")
    assert "FINISH" in forbidden.variants(), "a task may also say what not to do"
    asking = replace(half, tools=(tool(requires_approval=True)(t.get_weather), t.get_capital))
    assert "FINISH" in asking.variants(), "what needs a person is never pressed"
    for effect in (tool(t.get_weather), tool(idempotent=True, exclusive=True)(t.get_weather)):
        assert "FINISH" in replace(half, tools=(effect, t.get_capital)).variants(), "nor what may have an effect"
    chief = Moment("市场部负责人的分机号是多少?", (t.query_chief, t.query_phone), ZH)
    assert set(chief.after("query_chief", {"department": "市场部"}, "高飞").variants()) == {"query_phone"}


def test_there_is_no_answer_while_a_number_is_unused_that_another_tool_could_take() -> None:
    """What six of them cost is not what one costs; once every tool was tried, the model may say what it likes."""
    price = Moment("What do 6 keyboards cost in total?", (t.get_price, t.multiply))
    one = price.after("get_price", {"product": "keyboard"}, "45.0")
    assert set(one.variants()) == {"multiply"}
    assert one.given("multiply") == [{"a": 6, "b": 45}, {"a": 45, "b": 6}], "not 6 times 6"
    assert "FINISH" in one.after("multiply", {"a": 45, "b": 2}, "90").variants()
    assert "FINISH" in replace(one, task="What does the keyboard cost?").variants()


def test_there_is_no_answer_while_a_unit_is_unused_that_another_tool_could_take() -> None:
    """A price in GBP is not one in EUR; a tool that takes no amount is not tried for it."""
    desk = Moment("How much is the price of a desk in GBP?", (t.get_price, t.convert_currency, t.get_email))
    assert set(desk.after("get_price", {"product": "desk"}, "340.0").variants()) == {"convert_currency"}


def test_there_is_no_answer_to_how_many_without_a_number() -> None:
    """A question for a number is open while no result holds one and another tool is there."""
    people = Moment("How many people live in the capital of Sundra?", (t.get_capital, t.get_population))
    half = people.after("get_capital", {"country": "Sundra"}, "Palewa")
    assert set(half.variants()) == {"get_population"}
    assert "FINISH" in half.after("get_population", {"city": "Palewa"}, "67300").variants()
    assert "FINISH" in replace(half, task="Name the capital of Sundra.").variants()


def test_codes_in_capitals_are_what_a_tool_takes_that_needs_as_many() -> None:
    """From CNY to EUR is neither from nor to USD."""
    money = Moment("Convert 400 CNY to EUR.", (t.convert_currency, t.get_price))
    assert money.values("convert_currency", "source") == money.values("convert_currency", "target") == ["CNY", "EUR"]
    assert money.values("get_price", "product") is None


def test_there_is_no_answer_before_each_code_of_the_task_was_used() -> None:
    """A file that is to be written is not forgotten; after a repeat the task is answered all the same."""
    moment = Moment("Write the sum of 12 and 8 to sum.txt.", (t.add, t.count_words)).after(
        "add", {"a": 12, "b": 8}, "20"
    )
    assert set(moment.variants()) == {"add", "count_words"}
    assert "FINISH" in moment.after("count_words", {"text": "sum.txt"}, "1").variants()
    assert set(moment.after("add", {"a": 12, "b": 8}, "20").variants()) == {"FINISH"}
    assert "FINISH" in replace(moment, tools=(t.add,)).variants(), "no tool takes a text"


def test_solved_and_the_action_cannot_contradict_each_other() -> None:
    """Thought and `solved` come before the action, and only a solved task is answered."""
    for action, one in SUM.after("add", {"a": 12, "b": 8}, "20").variants().items():
        assert list(one["properties"]) == one["required"] == ["thought", "solved", "action", "action_input"]
        assert one["properties"]["solved"] == {"const": action == "FINISH"}
        assert one["additionalProperties"] is False


def test_numbers_are_held_to_the_task_and_to_results_while_one_is_unused() -> None:
    """After 12 + 8 = 20 the factor 7 is open, and multiplying means 20 and 7."""
    assert SUM.values("add", "a") is None
    after = SUM.after("add", {"a": 12, "b": 8}, "20")
    assert after.given("multiply") == [{"a": 7, "b": 20}, {"a": 20, "b": 7}]
    assert after.after("multiply", {"a": 20, "b": 7}, "140").values("multiply", "a") is None


def test_a_number_that_may_be_left_out_is_not_held() -> None:
    """A precision, a limit, a page comes from no task."""

    def rounded(value: float, digits: int = 2) -> float:
        """Round a value."""
        return round(value, digits)

    after = Moment("Add 12 and 8, then 7, then round.", (t.add, rounded)).after("add", {"a": 12, "b": 8}, "20")
    assert (after.values("rounded", "value"), after.values("rounded", "digits")) == ([7, 20], None)


def test_a_whole_number_is_held_to_whole_numbers() -> None:
    """2.5 is no count."""

    def repeated(weight: float, count: int) -> float:
        """Weight of several."""
        return weight * count

    after = Moment("Add 1 and 1, then 2.5 three times 4.", (t.add, repeated)).after("add", {"a": 1, "b": 1}, "2")
    assert (after.values("repeated", "weight"), after.values("repeated", "count")) == ([2.5, 4, 2], [4, 2])


def test_a_misspelt_value_is_corrected_to_what_the_error_names() -> None:
    """`lamps` failed and the error knows `lamp`: the same tool, with that."""
    moment = Moment("How many lamps are there?", (t.get_price, t.get_stock)).after(
        "get_stock", {"product": "lamps"}, "unknown product 'lamps'; known: keyboard, lamp", ok=False
    )
    assert set(moment.variants()) == {"get_stock"}
    assert moment.values("get_stock", "product") == ["lamp"]


def test_a_value_of_the_wrong_kind_leads_to_the_tools_that_the_task_names() -> None:
    """Veloria is no city, so the capital comes first; then the weather is asked for with what that gave."""
    assert set(FAILED.variants()) == {"get_capital"}
    after = FAILED.after("get_capital", {"country": "Veloria"}, "Tamsin")
    assert set(after.variants()) == {"get_weather"}
    assert after.values("get_weather", "city") == ["Tamsin"]
    both = FAILED.after("get_capital", {"country": "Veloria"}, '{"country": "Veloria", "capital": "Tamsin"}')
    assert both.values("get_weather", "city") == ["Tamsin"], "what failed is not tried again"
    last = after.after("get_weather", {"city": "Tamsin"}, "rain")
    assert set(last.variants()) == {"get_weather", "get_capital", "FINISH"}


def test_a_value_that_was_made_up_leads_to_the_tools_that_the_task_speaks_of() -> None:
    """Nothing in the task is a product, so what converts comes first; a value with digits is the same tool's to correct."""
    moment = Moment("Convert 250 EUR to USD.", (t.get_price, t.convert_currency, t.get_population))
    made_up = moment.after("get_price", {"product": "product"}, "unknown product 'product'", ok=False)
    assert set(made_up.variants()) == {"convert_currency"}
    misspelt = moment.after("get_price", {"product": "product 9"}, "unknown product 'product 9'", ok=False)
    assert set(misspelt.variants()) == {"get_price", "convert_currency", "get_population"}


def test_a_tool_that_does_something_is_not_what_is_left_after_a_failure() -> None:
    """A task that only looks up never leaves a small model with nothing but a refund, nor with what a person has to approve."""

    def refund_order(order_id: str) -> str:
        """Pay an order back."""
        return order_id

    task = "What is the email address of the customer of order B42?"
    wrong = {"person": "B42"}
    moment = Moment(task, (t.get_email, tool(refund_order))).after("get_email", wrong, "unknown person 'B42'", ok=False)
    assert set(moment.variants()) == {"get_email", "refund_order", "FINISH"}
    asks = Moment(task, (t.get_email, tool(refund_order), t.get_order)).after(
        "get_email", wrong, "unknown 'B42'", ok=False
    )
    assert set(asks.variants()) == {"get_order"}
    guarded = replace(asks, tools=(t.get_email, tool(requires_approval=True)(t.get_order)))
    assert set(guarded.variants()) == {"get_email", "get_order", "FINISH"}


def test_look_ups_that_were_not_tried_are_what_is_left_after_a_value_of_the_task_failed() -> None:
    """400 CNY is no product: what else looks something up comes first, and then what failed is there again."""
    task = "400 CNY 换算成 EUR 是多少?"
    failed = "unknown product '400 CNY'"
    moment = Moment(task, (t.get_price, t.get_stock)).after("get_price", {"product": "400 CNY"}, failed, ok=False)
    assert set(moment.variants()) == {"get_stock", "FINISH"}
    after = moment.after("get_stock", {"product": "400 CNY"}, failed, ok=False)
    assert set(after.variants()) == {"get_price", "get_stock", "FINISH"}


def test_what_failed_twice_alike_gives_way_to_the_other_look_ups() -> None:
    """A made-up value that is insisted on is not asked for a third time; alone, or beside what has an effect, the tool stays."""

    def refund_order(order_id: str) -> str:
        """Pay an order back."""
        return order_id

    def insisting(*tools: Any) -> set[str]:
        moment = Moment("How far is it?", tools)
        for _ in range(2):
            moment = moment.after("get_price", {"product": "Red"}, "unknown product 'Red'", ok=False)
        return set(moment.variants())

    assert insisting(t.get_price, t.get_stock, tool(refund_order)) == {"get_stock"}
    assert insisting(t.get_price, tool(refund_order)) == {"get_price", "refund_order"}
    assert insisting(t.get_price) == {"get_price"}


def test_a_look_up_goes_on_to_the_next_code_of_the_same_form() -> None:
    """Two orders are both looked up before anything is made of one; what may do harm is never asked for on its own."""

    def order(order_id: str) -> str:
        """Look up an order."""
        return order_id

    task = "Add the totals of order SO-001 and order SO-002."
    look_up = Moment(task, (tool(idempotent=True)(order), t.add)).after("order", {"order_id": "SO-001"}, "4.50")
    assert (set(look_up.variants()), look_up.values("order", "order_id")) == ({"order"}, ["SO-002"])
    for other in (tool(order), tool(idempotent=True, exclusive=True)(order)):
        assert set(replace(look_up, tools=(other, t.add)).variants()) == {"order", "add"}
    assert "FINISH" in look_up.after("order", {"order_id": "SO-002"}, "7").variants()


def test_the_name_of_an_argument_is_left_out_of_its_value() -> None:
    """After `support team` failed for a person, a team is called `support`."""
    moment = Moment("Phone number of the leader of the support team?", (t.get_leader, t.get_phone)).after(
        "get_phone", {"person": "support team"}, "unknown person 'support team'", ok=False
    )
    assert moment.values("get_leader", "team") == ["support"]


@pytest.mark.parametrize(("given", "executed"), [("12 x", True), ("Veloria", False)])
def test_other_failures_leave_every_tool(given: str, executed: bool) -> None:
    """A value of the wrong form, and a call that was refused, are the same tool's to correct."""
    moment = WEATHER.after("get_weather", {"city": given}, f"wrong: {given!r}", ok=False, executed=executed)
    assert set(moment.variants()) == {"get_weather", "get_capital"}


def test_an_exact_repeat_with_the_same_result_is_followed_by_the_answer() -> None:
    """There is nothing new to ask; the repeat is not shown either."""
    once = replace(WEATHER, tools=(t.get_capital,)).after("get_capital", {"country": "Veloria"}, "Tamsin")
    twice = once.after("get_capital", {"country": "Veloria"}, "Tamsin\nNote: again")
    same = replace(twice, done=(*once.done, replace(once.done[0])))
    assert set(same.variants()) == {"FINISH"}
    assert same.variants()["FINISH"]["properties"]["thought"] == {"const": "The result is Tamsin; nothing is missing."}
    assert same.asked() == once.asked()
    several = replace(WEATHER, tools=(t.get_capital,))
    for _ in range(2):
        several = several.after("get_capital", {"country": "Veloria"}, '["Tamsin", "Kellmar"]')
    assert several.variants()["FINISH"]["properties"]["thought"] == {"const": "Nothing is missing."}


def test_a_new_result_of_the_same_call_is_no_repeat() -> None:
    """Asking again until something has changed is polling, and so is all that a tool declared repeatable does."""
    adding = replace(SUM, tools=(t.add,))
    again = adding.after("add", {"a": 1, "b": 2}, "3").after("add", {"a": 1, "b": 2}, "4")
    assert "add" in again.variants()
    polled = replace(WEATHER, tools=(tool(repeatable=True)(t.get_capital),))
    for _ in range(2):
        polled = polled.after("get_capital", {"country": "Veloria"}, "Tamsin")
    assert set(polled.variants()) == {"get_capital", "FINISH"}


def test_a_forced_answer_is_all_that_is_possible() -> None:
    """Without tools there is FINISH, and nothing that says the task were solved: a limit may have stopped it half way."""
    after = SUM.after("add", {"a": 12, "b": 8}, "20")
    assert list(after.variants("answer")["FINISH"]["properties"]) == ["action", "action_input"]
    assert after.asked("answer").endswith("Now FINISH with the answer.")


def test_unconstrained_servers_are_sent_no_schema() -> None:
    """What is said stays the same."""
    assert GuidedJson(constrain=False).response_format(WEATHER.prompt()) is None
    assert GuidedJson(constrain=False).compose(WEATHER.prompt()) == GUIDED.compose(WEATHER.prompt())


# ---------------------------------------------------------------- what is said


def test_a_prompt_says_what_is_known_and_what_of_the_task_is_unused() -> None:
    """After a call: its result, the task, the value that no call has used, the question."""
    assert SUM.after("add", {"a": 12, "b": 8}, "20").asked() == (
        "Result: add(a=12, b=8) = 20\n\nTask: Add 12 and 8, then multiply the sum by 7.\nNot used yet: 7\n"
        "Is something of the task still missing?"
    )


def test_the_tools_that_share_words_with_the_task_come_first() -> None:
    """A small model tends to take the first one."""
    text = Moment("Convert 250 EUR to USD.", (t.get_price, t.convert_currency)).asked()
    assert text.index("- convert_currency(") < text.index("- get_price(")
    assert text.endswith("Convert 250 EUR to USD.")


def test_a_chinese_task_is_spoken_to_in_chinese() -> None:
    """Rules, examples, results and questions."""
    moment = Moment("买 5 瓶牛奶一共要多少钱?", (t.query_price, t.multiply), texts=ZH)
    text = moment.after("query_price", {"product": "牛奶"}, "12.0").asked()
    assert text.splitlines()[0] == '结果：query_price(product="牛奶") = 12.0'
    assert "还没有用到：5" in text


def test_the_thought_of_a_failed_call_is_not_kept() -> None:
    """A wrong thought that is read again is believed; the call and its error are kept."""
    said, told = FAILED.blocks[-1].messages
    assert json.loads(str(said.content)) == {"action": "get_weather", "action_input": {"city": "Veloria"}}
    assert str(told.content).startswith('Failed: get_weather(city="Veloria"): unknown city')
    kept = SUM.after("add", {"a": 12, "b": 8}, "20").blocks[-1].messages[0]
    assert json.loads(str(kept.content))["thought"] == "so"


def test_the_system_text_of_the_caller_comes_before_the_rules() -> None:
    """The default one says the same in more words, and is left out."""
    first = GUIDED.compose(replace(WEATHER.prompt(), system="Be kind."))[0]
    assert str(first.content).startswith("Be kind.\n\nYou solve a task")
    assert EN.system not in str(GUIDED.compose(WEATHER.prompt())[0].content)


def test_an_agent_without_tools_is_asked_as_by_json_action() -> None:
    """There is nothing to guide to."""
    alone = replace(WEATHER.prompt(), tools=())
    assert GUIDED.compose(alone) == JsonAction().compose(alone)
    form = GUIDED.response_format(alone)
    assert form is not None
    assert form == JsonAction().response_format(alone)


@pytest.mark.parametrize("guide", GUIDES.values(), ids=list(GUIDES))
def test_examples_keep_the_protocol_and_name_no_tool_of_the_tasks(guide: Guide) -> None:
    """What they show could be replied, they end with an answer, and their tools are nobody's."""
    ours = {name for module in (t, m) for name in vars(module)}
    for example in guide.examples:
        names = {turn.action for turn in example.turns[:-1]}
        assert example.turns[-1].action == "FINISH"
        assert all(f"- {name}(" in example.tools for name in names)
        assert not names & ours


# ---------------------------------------------------------------- reading, choosing


def test_what_stands_before_the_action_is_for_the_model_alone() -> None:
    """A call and an answer are read as `json_action` reads them."""
    call = GUIDED.read(
        Replied(at=0, text='{"thought": "t", "solved": false, "action": "add", "action_input": {"a": 1, "b": 2}}'),
        ("add",),
        "plan",
    )
    assert isinstance(call, Calls)
    assert [(one.name, one.arguments) for one in call.calls] == [("add", {"a": 1, "b": 2})]
    text = '{"thought": "t", "solved": true, "action": "FINISH", "action_input": {"answer": "3."}}'
    assert GUIDED.read(Replied(at=0, text=text), ("add",), "plan") == Answer("3.")


@pytest.mark.parametrize(
    ("given", "model", "kind"),
    [
        (None, "local:0.5b", GuidedJson),
        (None, "some/model.gguf", GuidedJson),
        (None, "openai:gpt-4o-mini", Native),
        ("json_action", "local:0.5b", JsonAction),
        ("guided_json", "openai:x", GuidedJson),
    ],
)
def test_local_models_are_guided_unless_told_otherwise(given: str | None, model: str, kind: type) -> None:
    """The default goes by the model's name; a name of a dialect goes before it."""
    assert isinstance(dialect_for(given, model), kind)


def test_the_answer_tells_the_newest_result_where_that_is_one_short_value() -> None:
    """A small model works a thing out with tools and then says something else; what is no plain value is not held to."""
    for text, told in {
        "140.0": "140",
        "20.5": "20.5",
        "小雨,18度": "小雨,18度",
        "a+b@c.example": "a+b@c.example",
    }.items():
        form = SUM.after("add", {"a": 12, "b": 8}, "20").after("multiply", {"a": 20, "b": 7}, text).variants()["FINISH"]
        pattern = form["properties"]["action_input"]["properties"]["answer"]["pattern"]
        assert re.search(pattern, f"It is {told}, I think.")
        assert not re.search(pattern, "It is nineteen.")
        assert not re.search(pattern, f'It is "{told}".'), "a quotation mark would end the text of JSON"
        assert not re.search(pattern, "on and on " * 30 + told), "it comes to an end"
    for text in ('{"a": 1, "b": 2}', 'He said "no".', "back\\slash", "x" * 100):
        form = SUM.after("add", {"a": 12, "b": 8}, "20").after("multiply", {"a": 20, "b": 7}, text).variants()["FINISH"]
        assert "pattern" not in form["properties"]["action_input"]["properties"]["answer"]
