"""README's service and the guide's "Try it", run as they stand there, simulations cut short by options."""

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import tonnage

ROOT = Path(__file__).parents[2]
SHORTER = {
    "simulate placement": "--generate 10 --seeds 42",
    "simulate day": "--hours 0.3",
    "whatif": "--demand 1",
}
"""Options at the end of a command, of which the last of a name counts."""
LINES = re.findall(
    r"^tonnage (.+?)(?: +#.*)?$",
    (ROOT / "docs" / "guide.md").read_text(encoding="utf-8").partition("## Try it\n")[2].partition("\n## ")[0],
    re.MULTILINE,
)


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_the_guide_does_what_it_says(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shorter = next((options for verb, options in SHORTER.items() if line.startswith(verb)), "")

    done = CliRunner().invoke(tonnage, [*shlex.split(line), *shlex.split(shorter)])

    assert done.exit_code == 0, done.output
    assert done.stdout
    report = re.search(r"--report (\S+)", line)
    assert report is None or (tmp_path / report[1]).exists()


def test_all_lines_are_run() -> None:
    assert {line.split()[0] for line in LINES} == {"plan", "explain", "simulate", "whatif"}


def test_the_service_of_the_readme_gets_what_it_says(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (tmp_path / "service.yaml").write_text(text.partition("```yaml\n")[2].partition("```")[0], encoding="utf-8")
    fleet = [f"-f {ROOT}/examples/{name}.yaml" for name in ("nodes", "gpu-types", "profiles")]

    done = CliRunner().invoke(tonnage, shlex.split(f"plan {' '.join(fleet)} -f {tmp_path} -o json"))

    (service,) = json.loads(done.stdout)["services"]
    mix = " + ".join(f"{count} × {name}" for name, count in service["instances"].items())
    assert f"gives it {mix} at ${service['cost_per_hour']:.2f} per hour, proven cheapest" in text
    assert service["gap"] == 0


def test_the_readme_says_of_the_day_what_its_picture_says() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    picture = (ROOT / "docs" / "pictures" / "day.svg").read_text(encoding="utf-8")

    ours, cost, hours, theirs, other = re.findall(r"[\d.]+(?=\u00a0% of|\u00a0%; | in the| hours| \(dotted)", picture)

    assert f"In the {hours} hours in which all services are whole" in text
    said = re.search(r"cost ([\d.]+) % less", text)
    assert said is not None
    assert float(said[1]) == pytest.approx(100 * (1 - int(cost) / int(other)), abs=0.1)  # of whole dollars
    assert f"whole for {ours} % of the day, the baseline's for {theirs} %" in text
