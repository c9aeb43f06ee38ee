"""Collects the runs of run.sh into results.csv and curves.csv, and writes the tables in README.md between their markers.

Usage: table.py [FOLDER OF THE RUNS]; without a folder the tables are made from the committed CSVs.
"""
import csv
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
FIGURES = ["psnr_db", "psnr_q_db", "ssim", "bpp_raw", "bpp_entropy", "bpp_file", "weights", "iterations", "wall_s", "cpu_s",
           "cpu_model", "commit"]
CURVE = ["iteration", "elapsed_s", "cpu_s", "psnr_db", "psnr_q_db", "damping", "selectors_changed"]


def collect(runs):
    results, curves = [], []
    for summary in sorted(runs.glob("*/*/summary.json")):
        name = {"group": summary.parts[-3], "case": summary.parts[-2]}
        figures = json.loads(summary.read_text())
        log = list(csv.DictReader(open(summary.with_name("log.csv"))))
        rounds = sorted(float(b["elapsed_s"]) - float(a["elapsed_s"]) for a, b in zip(log, log[1:]))
        steps = int(log[1]["iteration"]) - int(log[0]["iteration"])
        median = rounds[len(rounds) // 2] / steps
        results.append(name | {k: figures[k] for k in FIGURES} | {"median_iteration_s": f"{median:.4f}"})
        curves += [name | {k: row[k] for k in CURVE} for row in log]
    for file, rows in (("results.csv", results), ("curves.csv", curves)):
        with open(HERE / file, "w", newline="") as out:
            writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def number(row, key, digits):
    return f"{float(row[key]):.{digits}f}" if row[key] else "-"


def tables():
    results = list(csv.DictReader(open(HERE / "results.csv")))
    curves = list(csv.DictReader(open(HERE / "curves.csv")))
    lines = []
    for group in dict.fromkeys(row["group"] for row in results):
        lines += ["", f"**{group}**", "", "| case | PSNR, dB | bpp raw | bpp entropy | bpp file | iterations | CPU s | s a round, median |",
                  "|---|--:|--:|--:|--:|--:|--:|--:|"]
        for row in (r for r in results if r["group"] == group):
            cells = [row["case"], number(row, "psnr_q_db", 2), number(row, "bpp_raw", 2), number(row, "bpp_entropy", 2),
                     number(row, "bpp_file", 2), row["iterations"], number(row, "cpu_s", 1), number(row, "median_iteration_s", 3)]
            lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "CPU-seconds until a PSNR is first printed (a print every 5 rounds or 20 iterations):", ""]
    levels = [28, 30, 32, 34, 36, 38, 40]
    lines += ["| case | " + " | ".join(f"{level} dB" for level in levels) + " |", "|---|" + "--:|" * len(levels)]
    optimisers = [c for c in curves if c["group"] == "optimisers"]
    for case in dict.fromkeys(c["case"] for c in optimisers):
        reach = lambda level: next((c["cpu_s"] for c in optimisers if c["case"] == case and c["psnr_q_db"]
                                    and float(c["psnr_q_db"]) >= level), None)
        cells = [f"{float(t):.1f}" if (t := reach(level)) else "-" for level in levels]
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    return "\n".join(lines).strip()


def main():
    if len(sys.argv) > 1:
        collect(pathlib.Path(sys.argv[1]))
    readme = HERE / "README.md"
    before, rest = readme.read_text().split("<!-- table -->")
    after = rest.split("<!-- end -->")[1]
    readme.write_text(f"{before}<!-- table -->\n{tables()}\n<!-- end -->{after}")


main()
