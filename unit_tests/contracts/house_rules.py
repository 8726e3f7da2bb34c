#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the rules of the house (docs/design.md) that can be read from the source text.

    house_rules.py ROOT [--only RULE]...

Prints one line per broken rule, "file:line: rule: what", and exits with 1 if there is any. house_rules_test.py breaks
each rule in a small tree and expects to see it reported.
"""
import argparse
import re
import sys
from pathlib import Path

# A room may include itself and the rooms named here.
MAY_INCLUDE = {
    "core": [],
    "comm": ["core"],
    "mesh": ["core", "comm"],
    "loss": ["core", "comm", "mesh"],
    "grad": ["core", "comm", "mesh"],
}
# Public headers that may include the header of a vendor: the opt-in ones.
NATIVE_HEADERS = {"comm/mpi.hpp": "mpi.h", "comm/nccl.hpp": "nccl.h"}
VENDOR_HEADERS = re.compile(r"(mpi|nccl|cuda|cuda_runtime|cuda_runtime_api|cuda_fp16|cuda_bf16)\.h")

SPDX = "SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception"
FOLDERS = ["src", "unit_tests", "perf_tests", "examples", "cmake", "docker", "spack", "docs", ".ci"]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "docs/**/*.md"]

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def read(path):
    return path.read_text(encoding="utf-8", errors="replace")


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def without_comments(text):
    """The text with comments blanked out, so that offsets and line numbers stay."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'', re.S)
    blank = lambda m: re.sub(r"[^\n]", " ", m[0]) if m[0].startswith("/") else m[0]
    return pattern.sub(blank, text)


def argument_text(text, opening):
    """What stands between the bracket at `opening` and the one that closes it."""
    pairs = {"(": ")", "{": "}", "[": "]"}
    depth, i = 0, opening
    while i < len(text):
        if text[i] == '"':
            match = STRING.match(text, i)
            i = match.end() if match else i + 1
            continue
        if text[i] in pairs:
            depth += 1
        elif text[i] in pairs.values():
            depth -= 1
            if depth == 0:
                return text[opening + 1 : i]
        i += 1
    return text[opening + 1 :]


class Tree:
    def __init__(self, root):
        self.root = root
        self.found = []
        self._public = None

    def report(self, path, line, rule, what):
        self.found.append(f"{path.relative_to(self.root)}:{line}: {rule}: {what}")

    def files(self, folders, accept):
        for folder in folders:
            for path in sorted((self.root / folder).rglob("*")):
                parts = path.relative_to(self.root).parts
                if path.is_file() and not {"build", "__pycache__", ".git"} & set(parts) and accept(path):
                    yield path

    def sources(self, folders=("src",)):
        return self.files(folders, lambda p: p.suffix in (".hpp", ".cpp") or p.name.endswith((".hpp.in", ".cpp.in")))

    def in_library(self, path):
        """The path as it is included, without the leading "shardgrad/"."""
        return path.relative_to(self.root / "src" / "shardgrad").as_posix()

    def public_headers(self):
        """The headers that are installed, as they are included: those that a FILE_SET of the library names."""
        if self._public is None:
            self._public = set()
            for lists in (self.root / "src").rglob("CMakeLists.txt"):
                folder = lists.parent.relative_to(self.root / "src").as_posix()
                for block in re.findall(r"\bFILE_SET\s+HEADERS\b[^)]*?\bFILES\b([^)]*)", read(lists)):
                    for name in block.split():
                        name = name.replace("${CMAKE_CURRENT_BINARY_DIR}/", "")
                        self._public.add(f"{folder}/{name}".removeprefix("./").removeprefix("shardgrad/"))
        return self._public


def rule_includes(tree):
    """Rooms include only the rooms below them, by full path; "..." is for private headers of the same room."""
    for path in tree.sources():
        room = tree.in_library(path).split("/")[0] if "/" in tree.in_library(path) else None
        text = without_comments(read(path))
        for match in INCLUDE.finditer(text):
            target = match[2]
            line = line_of(text, match.start())
            if match[1] == '"':
                included = (path.parent / target).resolve()
                home = tree.root / "src" / "shardgrad" / (room or "")
                if not included.is_file() or home not in included.parents:
                    tree.report(path, line, "includes", f'"{target}" is not a file of {home.relative_to(tree.root)}')
                elif tree.in_library(included) in tree.public_headers():
                    tree.report(path, line, "includes", f'"{target}" is installed: include it as '
                                                        f"<shardgrad/{tree.in_library(included)}>")
                continue
            if not target.startswith("shardgrad/"):
                continue
            other = target.split("/")[1]
            if room is None or other == room:
                continue  # headers above the rooms bring several of them together
            if room not in MAY_INCLUDE:
                tree.report(path, line, "includes", f"there is no room called {room}")
            elif other not in MAY_INCLUDE[room]:
                tree.report(path, line, "includes", f"{room} must not include {target}")


def rule_public_headers(tree):
    """Public headers do not include the headers of MPI, NCCL or CUDA, nor headers that are not installed."""
    for path in tree.sources():
        name = tree.in_library(path)
        if name.removesuffix(".in") not in tree.public_headers():
            continue
        text = without_comments(read(path))
        for match in INCLUDE.finditer(text):
            line = line_of(text, match.start())
            if VENDOR_HEADERS.fullmatch(match[2]) and NATIVE_HEADERS.get(name) != match[2]:
                tree.report(path, line, "public-headers", f"public header includes {match[2]}")
            if match[1] == '"':
                tree.report(path, line, "public-headers", f'public header includes the private header "{match[2]}"')
            if not match[2].startswith("shardgrad/"):
                continue
            target = match[2].removeprefix("shardgrad/")
            if target not in tree.public_headers():
                tree.report(path, line, "public-headers", f"public header includes {match[2]}, which is not installed")
            if target in NATIVE_HEADERS:
                tree.report(path, line, "public-headers", f"public header includes the opt-in header {match[2]}")


LABELLED_CALL = re.compile(
    r"\b(?:parallel_for|parallel_reduce|parallel_scan|view_alloc|fence|pushRegion|ScopedRegion(?:\s+\w+)?|ProfilingSection"
    r"(?:\s+\w+)?|enqueue)\s*([({])")
VIEW = re.compile(r"\bKokkos::(?:View|DualView)\s*<")
NESTED_POLICY = re.compile(r"\s*(?:Kokkos::)?(?:TeamThread|TeamVector|ThreadVector)(?:MD)?Range\b")


def view_constructions(text):
    """Offsets of the brackets that open the constructor arguments of views."""
    for match in VIEW.finditer(text):
        depth, i = 1, match.end()
        while i < len(text) and depth > 0:
            depth += {"<": 1, ">": -1}.get(text[i], 0)
            i += 1
        after = re.match(r"\s*\w*\s*([({])", text[i:])
        if after:
            yield i + after.start(1)


def rule_labels(tree):
    """Labels of kernels, views, fences and regions start with "shardgrad::"; kernels have one."""
    for path in tree.sources():
        text = without_comments(read(path))
        for match in LABELLED_CALL.finditer(text):
            arguments = argument_text(text, match.start(1))
            line = line_of(text, match.start())
            literal = STRING.search(arguments)
            first = arguments.split(",")[0].strip()
            if match[0].startswith("parallel_"):
                if NESTED_POLICY.match(arguments):
                    continue
                if not first.startswith('"'):
                    if "label" not in first:
                        tree.report(path, line, "labels", f"kernel without a label: {match[0]}{first}")
                    continue
            if literal and not literal[1].startswith("shardgrad::"):
                tree.report(path, line, "labels", f'label "{literal[1]}" does not start with "shardgrad::"')
        for opening in view_constructions(text):
            arguments = argument_text(text, opening).strip()
            literal = STRING.match(arguments)
            if literal and not literal[1].startswith("shardgrad::"):
                tree.report(path, line_of(text, opening), "labels",
                            f'view label "{literal[1]}" does not start with "shardgrad::"')


def rule_documented(tree):
    """Options of the build and environment variables are documented."""
    documents = "\n".join(read(path) for pattern in DOCUMENTS for path in sorted(tree.root.glob(pattern)))
    known = set(re.findall(r"\bSHARDGRAD_[A-Z0-9_]+\b", documents))
    seen = set()

    def need(path, text, match):
        name = match[1]
        if name not in known and name not in seen:
            seen.add(name)
            tree.report(path, line_of(text, match.start()), "documented",
                        f"{name} is explained neither in README.md nor in CONTRIBUTING.md nor under docs/")

    cmake_files = [tree.root / "CMakeLists.txt", *tree.files(FOLDERS, lambda p: p.name == "CMakeLists.txt" or p.suffix == ".cmake")]
    for path in cmake_files:
        if not path.is_file():
            continue
        text = re.sub(r"#[^\n]*", "", read(path))
        for match in re.finditer(r"\boption\(\s*(SHARDGRAD_[A-Z0-9_]+)", text):
            need(path, text, match)
        for match in re.finditer(r"\bset\(\s*(SHARDGRAD_[A-Z0-9_]+)[^()]*\bCACHE\b", text):
            need(path, text, match)
    for path in tree.sources(["src", "unit_tests", "perf_tests", "examples"]):
        text = without_comments(read(path))
        for match in re.finditer(r'"(SHARDGRAD_[A-Z0-9_]+)"', text):
            need(path, text, match)
    for path in tree.files(["docker", ".ci"], lambda p: True):
        text = read(path)
        for match in re.finditer(r"\$\{?(SHARDGRAD_[A-Z0-9_]+)", text):
            need(path, text, match)


def rule_spdx(tree):
    """Every source, script and CMake file names its licence in its first three lines."""
    def accept(path):
        name = path.name.removesuffix(".in")
        if name == "CMakeLists.txt" or name.endswith((".hpp", ".cpp", ".cmake", ".py", ".sh")):
            return True
        return path.suffix == "" and read(path).startswith("#!")

    for path in [tree.root / "CMakeLists.txt", *tree.files(FOLDERS, accept)]:
        if path.is_file() and not any(SPDX in line for line in read(path).splitlines()[:3]):
            tree.report(path, 1, "spdx", f"the first lines do not hold '{SPDX}'")


def rule_listed(tree):
    """Every C++ file is named in the CMakeLists.txt of its folder or of one above: it is built, or installed. Private
    headers, which are included by "...", need not be."""
    private = {(path.parent / match[2]).resolve() for path in tree.sources()
               for match in INCLUDE.finditer(read(path)) if match[1] == '"'}
    for path in tree.sources(["src", "unit_tests", "perf_tests", "examples"]):
        if path.suffix == ".hpp" and path.relative_to(tree.root).parts[0] != "src":
            continue
        if path in private:
            continue
        folder = path.parent
        while folder != tree.root:
            lists = folder / "CMakeLists.txt"
            name = path.relative_to(folder).as_posix()
            # The list may go through a loop: foreach(name IN ITEMS ...) with ${name}_test.cpp.
            names = [name.removesuffix(".in"), name.removesuffix("_test.cpp")]
            if lists.is_file() and any(re.search(rf"(?<![\w/]){re.escape(n)}(?!\w)", read(lists)) for n in names):
                break
            folder = folder.parent
        else:
            tree.report(path, 1, "listed", "no CMakeLists.txt names this file")


def rule_guards(tree):
    """Headers are protected against double inclusion."""
    for path in tree.sources(["src", "unit_tests", "perf_tests", "examples"]):
        if path.name.removesuffix(".in").endswith(".hpp") and not re.search(r"^#pragma once$", read(path), re.M):
            tree.report(path, 1, "guards", "no #pragma once")


def rule_unfinished(tree):
    """No marks of unfinished work."""
    for path in tree.files(["src", "unit_tests", "perf_tests", "examples", "cmake", "docker", ".ci"],
                           lambda p: not p.name.startswith("house_rules")):
        text = read(path)
        for match in re.finditer(r"\b(TODO|FIXME|XXX|HACK)\b", text):
            tree.report(path, line_of(text, match.start()), "unfinished", match[0])


RULES = {name.removeprefix("rule_").replace("_", "-"): function
         for name, function in list(globals().items()) if name.startswith("rule_")}


def main(command_line):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--only", action="append", choices=sorted(RULES), help="check this rule (may be repeated)")
    arguments = parser.parse_args(command_line)
    tree = Tree(arguments.root.resolve())
    if not (tree.root / "src" / "shardgrad").is_dir():
        sys.exit(f"{tree.root} has no src/shardgrad")
    if not any(True for _ in tree.sources()):
        sys.exit(f"{tree.root}/src/shardgrad has no sources")
    for name in arguments.only or sorted(RULES):
        RULES[name](tree)
    print("\n".join(tree.found))
    return 1 if tree.found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
