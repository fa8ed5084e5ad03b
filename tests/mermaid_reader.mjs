// Draws each Mermaid text of standard input (one JSON string a line) with the real library, and answers with what is seen in it:
// one JSON line each. `node mermaid_reader.mjs FOLDER`, where FOLDER has mermaid and jsdom installed.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.argv[2]}/package.json`);
const { JSDOM } = require("jsdom");
const { window } = new JSDOM("<!doctype html><body></body>", { pretendToBeVisual: true });
for (const name of ["document", "Element", "HTMLElement", "SVGElement", "Node", "DOMParser", "navigator", "CSSStyleSheet"]) {
  Object.defineProperty(globalThis, name, { value: window[name], configurable: true, writable: true });
}
globalThis.window = window;
// jsdom lays nothing out; any size will do to read what is written.
window.SVGElement.prototype.getBBox = () => ({ x: 0, y: 0, width: 100, height: 20 });
window.SVGElement.prototype.getComputedTextLength = () => 100;
// Where all is of one size, Mermaid notes more than points of a line, and would fail over their letters.
globalThis.btoa = (text) => Buffer.from(text).toString("base64");
const fromMermaid = createRequire(require.resolve("mermaid"));
const { marked } = await import(pathToFileURL(fromMermaid.resolve("marked")).href);
const { default: mermaid } = await import(pathToFileURL(require.resolve("mermaid")).href);
mermaid.initialize({ startOnLoad: false });

const seen = (element) => {
  for (const br of element.querySelectorAll("br")) br.replaceWith("\n");
  return element.textContent;
};

// Versions before 11.5 take every label for Markdown, and later ones some. The kinds of what is more than text, and what is trimmed:
const TEXT = new Set(["paragraph", "text", "space"]);
const kinds = (tokens) => tokens.flatMap((token) => [token.type, ...kinds(token.tokens ?? [])]);
const marks = (label) => {
  const text = label.replace(/<br\s*\/?>/g, "\n");
  const trimmed = text.split("\n").some((line) => line !== line.trim() || line.includes("  "));
  return [...kinds(marked.lexer(text)).filter((kind) => !TEXT.has(kind)), ...(trimmed ? ["spaces"] : [])];
};

const read = async (text, turn) => {
  const { db } = await mermaid.mermaidAPI.getDiagramFromText(text);
  const { svg } = await mermaid.render(`drawn${turn}`, text);
  const drawn = window.document.createElement("div");
  drawn.innerHTML = svg;
  const boxes = {};
  for (const box of drawn.querySelectorAll("g.node")) boxes[box.id.replace(/^.*flowchart-(.*)-\d+$/, "$1")] = seen(box);
  const labels = {};
  for (const label of drawn.querySelectorAll("g.edgeLabel [data-id]")) labels[label.dataset.id] = seen(label);
  const arrows = db.getEdges().map((edge) => [edge.start, labels[edge.id] ?? "", edge.end]);
  const raw = [...db.getVertices().values(), ...db.getEdges()].map((one) => one.text ?? "");
  return { boxes, arrows, marks: raw.flatMap(marks), pictures: drawn.querySelectorAll("i, img, script, a").length };
};

let turn = 0;
for await (const line of createInterface({ input: process.stdin })) {
  turn += 1;
  const answer = await read(JSON.parse(line), turn).catch((error) => ({ error: String(error) }));
  window.document.body.replaceChildren();
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
