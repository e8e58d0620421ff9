"""The code of docs/jacobian.md runs."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "jacobian.md"


def test_the_code_of_the_page_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 3
    exec("\n".join(blocks), {})
