"""What the documentation site has beside `docs/`: README and its neighbours, the examples, and the public names.

Hooks of mkdocs, for mkdocs.yml. Pages are made from the files where they lie, with links turned to where pages are. This file
decides on the order of pages too; a page of `docs/` that it does not know comes last.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
#: Page -> file beside `docs/`.
BESIDE = {
    "index.md": "README.md",
    "architecture.md": "ARCHITECTURE.md",
    "security.md": "SECURITY.md",
    "contributing.md": "CONTRIBUTING.md",
    "changes.md": "CHANGELOG.md",
}
#: Section -> its pages.
ORDER = {
    "Training": ["coming-from", "several-models", "trainers", "pipelines", "dataframes", "imagenet", "computed-data"],
    "Running": ["administrators", "databricks", "report", "trackers", "what-goes-wrong"],
    "Choosing": ["planning", "compare", "speed", "deviations"],
}


def names() -> dict[str, tuple[str, list[str]]]:
    """Page -> (title, what it documents)."""
    import mpca

    groups = {
        "agents": ("In a train function", mpca._IN_AGENTS),
        "objectives": ("Objectives", mpca._OBJECTIVES),
        "methods": ("Methods", mpca._METHODS),
    }
    grouped = {name for _, of in groups.values() for name in of}
    rest = [name for name in mpca._HOMES if name not in grouped]
    pages = {"driver": ("On the driver", rest), **groups}
    known = {page: (title, [f"mpca.{name}" for name in of]) for page, (title, of) in pages.items()}
    others = ["mpca.lightning.Strategy", "mpca.transformers.Callback", "mpca.ml.MpcaEstimator", "mpca.ml.MpcaModel"]
    return {**known, "trainers": ("Trainers and pipelines", [*others, "mpca.ml.trust_pickles"])}


def relinked(text: str) -> str:
    """Markdown of the root as a page of the site: links into `docs/` and to neighbours."""
    for page, name in BESIDE.items():
        text = text.replace(f"]({name})", f"]({page})")
    return text.replace("](docs/", "](")


def _examples() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "examples").glob("*.py")):
        source = path.read_text(encoding="utf-8")
        first = (ast.get_docstring(ast.parse(source)) or path.stem).partition("\n")[0]
        yield f"examples/{path.stem}.md", f"# {path.name}\n\n{first}\n\n```python\n{source}```\n"


def _reference() -> Iterator[tuple[str, str]]:
    for page, (title, documented) in names().items():
        yield f"reference/{page}.md", f"# {title}\n\n" + "\n".join(f"::: {name}\n" for name in documented)


def on_config(config: Any) -> Any:
    there = {path.stem for path in (ROOT / "docs").glob("*.md")}
    sections = {title: [page for page in pages if page in there] for title, pages in ORDER.items()}
    rest = sorted(there.difference(*ORDER.values()))
    config.nav = [
        {"mpca": "index.md"},
        *({title: [f"{page}.md" for page in pages]} for title, pages in sections.items()),
        {"Examples": [page for page, _ in _examples()]},
        {"Reference": [f"reference/{page}.md" for page in names()]},
        {"Project": [*(f"{page}.md" for page in rest), *list(BESIDE)[1:]]},
    ]
    return config


def on_files(files: Files, config: Any) -> Files:
    made = [(page, relinked((ROOT / name).read_text(encoding="utf-8"))) for page, name in BESIDE.items()]
    for page, content in [*made, *_examples(), *_reference()]:
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Scripts of `examples/` are pages here; a page that is only named becomes a link, but in code."""
    markdown = re.sub(r"\]\(\.\./examples/(\w+)\.py\)", r"](examples/\1.md)", markdown)
    up = "../" * page.file.src_uri.count("/")
    parts = re.split(r"(^```.*?^```|^ {4}.*?$|`[^`\n]*`)", markdown, flags=re.DOTALL | re.MULTILINE)
    parts[::2] = [re.sub(r"(?<![\w\[/])docs/([\w-]+)\.md", rf"[\1]({up}\1.md)", one) for one in parts[::2]]
    return "".join(parts)
