"""Plain data as JSON or YAML text; the same data gives the same text."""

import json

from cli.printing.plan_figures import Document


def written(data: Document, output: str) -> str:
    """Text of a document as `json` or `yaml`; the same document always gives the same text."""
    if output == "json":
        return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    import yaml

    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120))
