"""The report of a run: what it says of every ending, that nothing in it is more than text, and that no trail is too damaged for it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fsm_agent import Agent, Approve, Cooling, Reflect, StopReason
from fsm_agent.context import Context
from fsm_agent.custom import state
from fsm_agent.effects import CallModel
from fsm_agent.errors import UnknownRun
from fsm_agent.guards import guard
from fsm_agent.machine import DEFAULT_MACHINE, Machine
from fsm_agent.policy import AtMost, Order, ToolPolicy
from fsm_agent.report import report
from fsm_agent.report.ending import _SENTENCES
from fsm_agent.report.markup import content, el
from fsm_agent.report.parts import Turn
from fsm_agent.report.step_page import _PURPOSES
from fsm_agent.report.timeline import LENGTH, timeline
from fsm_agent.table import extend
from fsm_agent.testing import ScriptedModel, call, reply
from fsm_agent.tools.plain import well_formed
from fsm_agent.trail import FernetCipher, TrailLocked
from fsm_agent.trail.entries import canonical_json
from fsm_agent.trail.fork import fork
from fsm_agent.visible import safe
from tests.report.runs import ENDINGS, HOSTILE, RUN, asks, journal_over, page, ran, resealed, run_of

VOID = {"meta", "link", "br", "hr"}


class Seen(HTMLParser):
    """A page as a browser takes it apart: its elements with their attributes, its ids, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        assert len(dict(attrs)) == len(attrs), f"an attribute twice: {tag} {attrs}"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Each end is that of the newest element."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note text."""
        self.text += data

    def values(self, name: str) -> list[str]:
        """The values of an attribute, wherever it stands."""
        return [attributes[name] or "" for _, attributes in self.elements if name in attributes]


def check_harmless(html: str) -> Seen:
    """Nothing runs, nothing is fetched, no link leads out, and every name is given once and means something."""
    seen = Seen(html)
    tags = {tag for tag, _ in seen.elements}
    assert not tags & {"script", "iframe", "object", "embed", "form", "img", "base", "audio", "video", "image", "use"}
    assert [tag for tag, _ in seen.elements].count("style") == 1
    assert not [
        name for _, attributes in seen.elements for name in attributes if name.startswith("on") or name == "style"
    ]
    assert not seen.values("src")
    assert not [href for href in seen.values("href") if not href.startswith("#") and href != "data:,"]
    ids = seen.values("id")
    assert len(ids) == len(set(ids))
    named = [name for kind in ("aria-labelledby", "aria-describedby") for name in seen.values(kind)]
    assert {*named, *(href[1:] for href in seen.values("href") if href.startswith("#"))} <= set(ids)
    return seen


# ---------------------------------------------------------------- endings


@pytest.mark.parametrize("name", ENDINGS)
def test_every_ending_has_a_page(name: str) -> None:
    """Whatever became of the run, the page is well-formed and harmless, and says how it stands and why."""
    html = ENDINGS[name]()
    seen = check_harmless(html)
    assert html.startswith("<!doctype html>")
    usual = {"approved": "completed", "refused": "completed", "denied": "completed"}
    status = usual.get(name, name if name in ("completed", "partial", "suspended") else "failed")
    assert f'class="pill {status}"' in html
    (sentence,) = re.findall(r'<section id="outcome".*?<p class="sentence [a-z-]+">(.*?)</p>', html)
    assert sentence.endswith(".")
    assert "audit: nothing wrong" in seen.text


def test_every_reason_has_a_sentence() -> None:
    """No reader is left with the name of an enum."""
    assert set(_SENTENCES) == set(StopReason)


def test_a_page_tells_what_happened() -> None:
    """The reply, the call with its arguments and result, each guard with its values, tokens, and the answer."""
    text = Seen(ENDINGS["completed"]()).text
    for said in (
        *("I look up 1.", '"number": 1', "order 1 is paid", "It is paid.", "Asked the model. 401 tokens in, 31 out."),
        *(
            "steps_spent no: max_steps = 10, steps = 1",
            "at least 10 steps were taken",
            "250 ms",
            "1,044",
            "openai:small",
        ),
        *("The model gave its answer.", "answered after 2 steps", "Nothing is wrong: "),
    ):
        assert said in text, said


def test_every_call_of_the_model_is_told_in_words() -> None:
    """What the model was asked for is a sentence, whatever it was."""
    purposes = get_args(get_type_hints(CallModel)["purpose"])
    told = page([asks(1), '{"go_on": true, "next_tool": null}', "Paid."], reflect=Reflect(every=1, most=1))
    assert set(_PURPOSES) == set(purposes)
    assert "Asked the model whether to go on." in Seen(told).text


def test_a_refusal_says_why() -> None:
    """A call that never ran is shown with what was wrong about it."""
    text = Seen(ENDINGS["refused"]()).text
    assert "Refused nothing, so it did not run." in text
    assert "Refused say, so it did not run." in text


def test_people_are_part_of_the_story() -> None:
    """What a person was asked, what they said, and what waits for them."""
    assert "Nobody has decided yet." in Seen(ENDINGS["suspended"]()).text
    assert "It needs a decision about send." in Seen(ENDINGS["suspended"]()).text
    assert "Decided: denied call_1_0: not to Ana" in Seen(ENDINGS["denied"]()).text
    assert "Decided: approved call_1_0" in Seen(ENDINGS["approved"]()).text
    agent, _ = ran([call("send", to="Ana")])
    agent.cancel(RUN, "too late")
    assert "Decided: by nobody" in Seen(run_of(agent)).text


def test_a_round_that_is_no_step_is_not_called_one() -> None:
    """The names of the steps are those that `max_steps` counts."""
    text = Seen(ENDINGS["repeated"]()).text
    assert "After step 3" in text
    assert "Step 4" not in text


def test_a_fork_says_whose_past_it_has() -> None:
    """A run that was forked from another names it, and where."""
    agent, _ = ran([asks(1), asks(2), "Both are paid."])
    made = fork(agent.journal, RUN, at=5, new_run_id="other")
    text = Seen(report(agent.journal, made)).text
    assert "r at transition 5" in text
    assert "The run broke off in PLAN" in text


def test_a_run_that_somebody_drives_is_under_way() -> None:
    """While another process holds the run, it has not broken off."""
    agent, trails = ran([call("send", to="Ana")])
    trails.claim(RUN, "elsewhere:1:token", 1e12, 0.0)
    assert "The run goes on; here it is in REVIEW." in Seen(run_of(agent)).text


@guard("never")
def never(ctx: Context) -> bool:
    """A guard of one's own."""
    return False


def test_a_state_of_ones_own_is_shown_as_any_other() -> None:
    """Under a table of one's own the page has its states, and the audit goes by it."""

    @state("COMPLIANCE", events=["cleared"])
    def compliance(ctx: Context) -> str:
        """Look at the calls."""
        return "cleared"

    through = {"VALIDATE --accepted--> EXECUTE": "VALIDATE --accepted--> COMPLIANCE"}
    table = extend(states=[compliance], rows=["COMPLIANCE --cleared--> EXECUTE"], instead=through)
    agent, _ = ran([asks(1), "It is paid."], table=table)
    text = Seen(run_of(agent, machine=Machine(table))).text
    assert "COMPLIANCEcleared→EXECUTE" in text
    assert "audit: nothing wrong" in text
    without = Seen(run_of(agent)).text
    assert "audit: 1 finding" in without
    assert "The model gave its answer." in without


def test_an_answer_that_was_forced_is_told_as_that_without_the_table_of_the_run() -> None:
    """What cannot be folded again says by its transitions how it ended: a partial run is not told as a completed one."""
    own = extend(guards=[never], before={"DECIDE --decided--> PLAN": "DECIDE --decided [never]--> ABORT (unsure)"})
    agent, _ = ran([asks(1), "One is paid."], table=own, max_steps=1)
    text = Seen(report(agent.journal, RUN, machine=DEFAULT_MACHINE)).text
    assert text.lstrip().startswith("partial: ")
    assert "A limit was reached, so the model was asked once for an answer" in text


def test_what_governs_a_run_beside_its_limits_is_in_its_set_up() -> None:
    """The rules of its tool policy, its temperature, its reflection and its ladder; what a run has not is not named."""
    policy = ToolPolicy(Order("order", "send"), AtMost("send", 1))
    agent, _ = ran(["No."], policy=policy, temperature=Cooling(0.3), reflect=Reflect(), ladder=["answer", "stop"])
    text = Seen(run_of(agent)).text
    for said in (
        "policysend only after order has succeeded; send at most once",
        "temperatureCooling(after=3, start=0.3, temperature=0.1)",
        "reflectionReflect(every=3, most=2)",
        "ladderanswer, stop",
    ):
        assert said in text, said
    bare = Seen(run_of(ran(["No."])[0])).text
    assert not [name for name in ("temperature", "policy", "reflectionReflect") if name in bare]


def test_the_same_trail_gives_the_same_page() -> None:
    """Nothing of the moment or the machine is in it."""
    agent, _ = ran([asks(1), "It is paid."])
    assert run_of(agent) == run_of(agent)


def test_an_unknown_run_is_refused() -> None:
    """There is nothing to show of it."""
    agent, _ = ran(["Hello."])
    with pytest.raises(UnknownRun):
        report(agent.journal, "none")


# ---------------------------------------------------------------- what is hostile


def test_the_policy_allows_the_style_that_is_there_and_nothing_else() -> None:
    """Nothing is fetched or run even if a browser were told to: only the one style counts, by its digest."""
    html = ENDINGS["completed"]()
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (policy,) = [
        attributes["content"] or ""
        for tag, attributes in Seen(html).elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'; ")
    assert "unsafe" not in policy
    assert not re.findall(r"url\(|@import|@font-face|https?:", style)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_stays_text(text: str) -> None:
    """From the task, the reply, an argument, a result or the answer: it is shown, letter for letter, and is nothing else."""
    html = page([reply(text or "x", call("say", text=text)), f"{text}."], task=f"{text}?")
    seen = check_harmless(html)
    shown = safe(well_formed(text))[:19_000]
    assert seen.text.count(shown) >= 3
    assert html.encode().decode() == html


@settings(max_examples=60)
@given(st.text(), st.text())
def test_what_is_built_reads_back(text: str, value: str) -> None:
    """Whatever stands in an element or an attribute comes out of a parser as it went in, invisible characters written out."""
    seen = Seen(el("div", el("i", text), content(text), title=value))
    assert seen.elements[0] == ("div", {"title": safe(value.replace("\r\n", "\n"))})
    assert seen.text == safe(text.replace("\r\n", "\n")) + "\n" + safe(text.replace("\r\n", "\n"))


def test_secrets_are_redacted_unless_asked_for() -> None:
    """By their names and by their look, everywhere on the page; unredacted it says that they are shown."""
    agent, _ = ran([asks(1), "The password: hunter2."], task="My password: hunter2")
    shown, kept = run_of(agent), run_of(agent, unredacted=True)
    assert "hunter2" not in shown
    assert "k-12345678" not in shown
    assert "What looks like a secret is redacted." in shown
    assert "hunter2" in kept
    assert "k-12345678" in kept
    assert "Secrets are shown." in kept


# ---------------------------------------------------------------- what is damaged or locked


def test_a_damaged_trail_is_shown_as_far_as_it_can_be_read() -> None:
    """One changed entry: the page names it, vouches for nothing after it, and shows the rest."""
    agent, trails = ran([asks(1), "It is paid."])
    entries = list(trails.read(RUN))
    changed = [one.text.replace("order 1 is paid", "order 1 is void") for one in entries]
    broken = [type(one)(one.seq, text, one.seal) for one, text in zip(entries, changed, strict=True)]
    html = report(journal_over(agent, trails, broken), RUN)
    seen = check_harmless(html)
    assert "The audit found fault with this trail." in seen.text
    assert "order 1 is void" in seen.text
    assert "not vouched for" in seen.text
    assert "It is paid." in seen.text


def test_entries_that_are_missing_or_garbage_are_named() -> None:
    """What is left is shown; without its header too; of nothing at all there is still a page."""
    agent, trails = ran([asks(1), "It is paid."])
    entries = list(trails.read(RUN))
    garbage = [*entries[:5], type(entries[5])(5, "garbage", entries[5].seal), *entries[6:]]
    assert "is no entry" in Seen(report(journal_over(agent, trails, garbage), RUN)).text
    assert "is missing" in Seen(report(journal_over(agent, trails, entries[1:]), RUN)).text
    assert "the trail is empty" in Seen(report(journal_over(agent, trails, []), RUN)).text


def test_what_a_person_was_asked_stays_apart_from_what_came_after_it() -> None:
    """Where the transition between two effects cannot be read, neither is taken for a part of the other; a guard has a name."""
    agent, trails = ran([call("send", to="Ana"), "Sent."], approve=lambda _: Approve())
    documents = [json.loads(one.text) for one in trails.read(RUN)]
    last = [one for one in documents if one["kind"] == "transition" and one["body"]["source"] in ("REVIEW", "VALIDATE")]
    for one in last:
        one["body"]["guards"] = [[{}, True, {}]]
    html = report(journal_over(agent, trails, resealed(map(canonical_json, documents))), RUN)
    assert "a guard without a name" in check_harmless(html).text


JSON = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything in JSON data."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for name, item in inside for found in leaves(item, (*path, name)))]


TAMPERED = [ran([asks(1), asks(7), call("send", to="Ana")]), ran(["", "Hello."]), ran([RuntimeError("none")] * 2)]


@settings(max_examples=40, phases=[Phase.generate])
@given(st.data())
def test_no_trail_is_too_damaged_for_a_page(data: st.DataObject) -> None:
    """Any value anywhere in any entry, sealed anew: there is a page, and it is harmless."""
    agent, trails = data.draw(st.sampled_from(TAMPERED))
    kept = list(trails.read(RUN))
    documents = [json.loads(one.text) for one in kept]
    for _ in range(data.draw(st.integers(1, 3))):
        document = data.draw(st.sampled_from(documents))
        path = data.draw(st.sampled_from([path for path in leaves(document["body"]) if path]))
        inside = document["body"]
        for name in path[:-1]:
            inside = inside[name] if isinstance(inside, list) or name in inside else {}
        if isinstance(inside, dict | list) and inside:
            inside[path[-1]] = data.draw(JSON)
    try:
        check_harmless(report(journal_over(agent, trails, resealed(map(canonical_json, documents))), RUN))
    finally:
        trails._entries[RUN] = kept


def test_an_encrypted_trail_needs_its_key() -> None:
    """With it the page is as any other; without it there is none."""
    pytest.importorskip("cryptography")
    agent, trails = ran([asks(1), "It is paid."], cipher=FernetCipher([base64.urlsafe_b64encode(bytes(32)).decode()]))
    assert "order 1 is paid" in Seen(run_of(agent)).text
    other = Agent(ScriptedModel(["Hello."]), store=trails)
    with pytest.raises(TrailLocked):
        report(other.journal, RUN)


# ---------------------------------------------------------------- time


TURNS = st.lists(
    st.builds(
        Turn,
        seq=st.just(1),
        source=st.sampled_from(["PLAN", "EXECUTE", "REVIEW", "RETRY"]),
        target=st.sampled_from(["PLAN", "DECIDE", "FINISH"]),
        elapsed_ms=st.floats(-1, 1e9).map(lambda ms: round(ms, 6)),
        tokens=st.integers(0, 10_000),
    ),
    max_size=20,
)


@settings(max_examples=100)
@given(TURNS)
def test_the_time_line_adds_up(turns: list[Turn]) -> None:
    """Bars stay within the whole, ticks run from nothing to the whole time, tokens only rise, and the sums are those of the turns."""
    drawn = timeline(turns)
    assert all(begin >= -1e-6 and begin + length <= LENGTH + 1e-6 for one in drawn.stays for begin, length in one.bars)
    assert list(drawn.ticks) == sorted(drawn.ticks)
    assert drawn.ticks[0] == 0
    assert drawn.ticks[-1] == pytest.approx(drawn.elapsed_ms, rel=1e-6, abs=1e-6)
    assert [y for _, y in drawn.rising] == sorted((y for _, y in drawn.rising), reverse=True)
    assert sum(one.tokens for one in drawn.stays) == drawn.tokens == sum(turn.tokens for turn in turns)
    assert sum(one.elapsed_ms for one in drawn.stays) == pytest.approx(sum(turn.elapsed_ms for turn in turns))


def test_waiting_for_a_person_leaves_room_for_the_rest() -> None:
    """A day of waiting is drawn as a fifth, and the page says that it is drawn shorter."""
    day = 86_400_000.0
    drawn = timeline(
        [
            Turn(seq=1, source="PLAN", target="REVIEW", elapsed_ms=800),
            Turn(seq=2, source="REVIEW", target="EXECUTE", elapsed_ms=day),
        ]
    )
    (plan, review) = (one for one in drawn.stays if one.bars)
    assert plan.bars == ((0.0, 800.0),)
    assert list(review.bars[0]) == pytest.approx([800.0, 200.0])
    assert drawn.shortened
    assert drawn.ticks[-1] == pytest.approx(day + 800)
