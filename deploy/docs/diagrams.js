// Draws the page's diagrams with the library that the console brings along.
import { mermaid } from "./mermaid/index.js";

const dark = () => document.body.getAttribute("data-md-color-scheme") === "slate";
const blocks = [...document.querySelectorAll(".diagram")].map((block) => [block, block.textContent]);

async function draw() {
  mermaid.initialize({ startOnLoad: false, theme: dark() ? "dark" : "neutral", securityLevel: "strict" });
  for (const [index, [block, text]] of blocks.entries()) {
    block.innerHTML = (await mermaid.render(`diagram-${index}`, text)).svg;
  }
}

new MutationObserver(draw).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
await draw();
