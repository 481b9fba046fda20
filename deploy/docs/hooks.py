"""mkdocs hooks: add pages generated from the code and rewrite links to files of the repository."""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import nicegui
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
import reference

ROOT = Path(__file__).parents[2]
# Pages of the repository that the site shows too, and where.
ELSEWHERE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
} | {
    f"{room}/{path.parent.name}/README.md": f"{room}/{path.parent.name}.md"
    for room in ("services", "clients")
    for path in (ROOT / room).glob("*/README.md")
}
_LINK = re.compile(r"\[([^\[\]]*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
_DIAGRAMS = Path(nicegui.__file__).parent / "elements" / "mermaid" / "dist"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add generated pages, and pages from elsewhere in the repository."""
    for source, target in ELSEWHERE.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text()))
    for target, content in reference.pages(ROOT).items():
        files.append(File.generated(config, target, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links from the page in the repository to its place on the site; links to code become text."""
    shown = page.file.src_uri
    source = next((path for path, target in ELSEWHERE.items() if target == shown), f"docs/{shown}")

    def moved(match: re.Match[str]) -> str:
        text, target, anchor = match.groups()
        meant = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        place = ELSEWHERE.get(meant, meant.removeprefix("docs/"))
        for page_of in (place, f"{place}/README.md", ELSEWHERE.get(f"{meant}/README.md", "")):
            if page_of and files.get_file_from_path(page_of) is not None:
                return f"[{text}]({posixpath.relpath(page_of, posixpath.dirname(shown) or '.')}{anchor or ''})"
        if (ROOT / meant).exists():
            return f"{text} (`{meant}` in the repository)"
        return match.group(0)

    return _LINK.sub(moved, markdown)


def on_post_build(config: MkDocsConfig, **_: Any) -> None:
    """Copy the diagram library from an installed package beside the pages."""
    assets = Path(config.site_dir) / "assets"
    shutil.copytree(_DIAGRAMS, assets / "mermaid", dirs_exist_ok=True)
    shutil.copy(Path(__file__).parent / "diagrams.js", assets / "diagrams.js")
