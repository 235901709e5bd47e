"""`python -m benchmarks NAME`: measures, prints one JSON object as its last line, exits 0 or 4."""

from __future__ import annotations

import argparse
import compileall
import json
import shutil
import sys

from benchmarks.benchmark import FOLDER, MODULES, RESULTS, WORK, Benchmark, Settings, load, say
from benchmarks.machine import machine
from benchmarks.outcome import exit_code, outcome, save
from benchmarks.process import ROOT
from benchmarks.table import replace_in, table

USAGE = 2


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for and return the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.list:
        return _list()
    if options.table:
        text = table(RESULTS)
        replace_in(FOLDER.parent / "docs" / "performance.md", text)
        print(text)
        return 0
    if options.name is None:
        parser.print_usage(sys.stderr)
        return USAGE
    settings = Settings(
        quick=options.quick, full=options.full, peers=options.peers and not options.full, kills=options.kills
    )
    return run(load(options.name), settings)


def run(benchmark: Benchmark, settings: Settings) -> int:
    """Measure one benchmark, save and print its result, and return the exit code."""
    say(f"{benchmark.name}: {benchmark.about}")
    described = machine()
    compileall.compile_dir(ROOT / "src", quiet=1)  # as pip does on installation; a checkout may have no bytecode
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    measurement = benchmark.measure(settings)
    result = outcome(benchmark, measurement, settings=settings, machine=described)
    for name, found in result["figures"].items():
        state = "holds " if found["holds"] else "MISSED"
        say(f"  {state}  {name}: {found['value']:.4g} {found['unit']} (bar {found['bar']})")
    say(f"  saved in {save(result, RESULTS)}")
    print(json.dumps(result), flush=True)
    return exit_code(result)


def _list() -> int:
    for name in MODULES:
        benchmark = load(name)
        print(f"{name}: {benchmark.about}")
        for bar in benchmark.bars:
            print(f"    {bar.figure} {bar}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Headrace beside its peers.")
    parser.add_argument("name", nargs="?", choices=list(MODULES), metavar="NAME", help=", ".join(MODULES))
    parser.add_argument("--quick", action="store_true", help="small inputs and few rounds: shows that it works")
    parser.add_argument("--full", action="store_true", help="embed: the large input, without other systems")
    parser.add_argument(
        "--peers", action=argparse.BooleanOptionalAction, default=True, help="measure other systems too"
    )
    parser.add_argument("--kills", type=int, metavar="N", help="chaos: kill so often at random moments")
    parser.add_argument("--list", action="store_true", help="list the benchmarks with their bars")
    parser.add_argument(
        "--table", action="store_true", help="write the table of docs/performance.md from saved results"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
