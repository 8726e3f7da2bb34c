#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Breaks each rule of house_rules.py in a small tree that keeps all of them, and expects to see that rule reported."""
import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import house_rules

SLASHES = "// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception\n"
HASH = "# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception\n"

KERNEL = SLASHES + """#include <shardgrad/loss/loss.hpp>
void loss() {
  Kokkos::View<float*> view("shardgrad::loss::view", 3);
  Kokkos::View<double**, Kokkos::LayoutRight> other(Kokkos::view_alloc(exec, "shardgrad::loss::other"), 3, 4);
  Kokkos::parallel_for("shardgrad::loss::kernel", policy, KOKKOS_LAMBDA(const Member& team) {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, 3), [&](int i) { view(i) = 0; });
  });
  Kokkos::fence("shardgrad::loss::end");  // parallel_for("a comment is not code")
}
"""

GOOD = {
    "CMakeLists.txt": HASH + 'option(SHARDGRAD_FAST "Fast" ON)\nset(SHARDGRAD_WAY "" CACHE STRING "Way")\n',
    "README.md": "SHARDGRAD_FAST and SHARDGRAD_WAY are options, SHARDGRAD_SPEED and SHARDGRAD_PLACE are variables.\n",
    "cmake/Module.cmake": HASH,
    "docker/run": "#!/bin/bash\n" + HASH + 'cd "${SHARDGRAD_PLACE-}"\n',
    "docker/Dockerfile": "FROM debian\n",
    "src/CMakeLists.txt": HASH + "target_sources(s PUBLIC FILE_SET HEADERS BASE_DIRS x FILES shardgrad/shardgrad.hpp)\n",
    "src/shardgrad/shardgrad.hpp": SLASHES + "#pragma once\n#include <shardgrad/grad/grad.hpp>\n#include <shardgrad/loss/loss.hpp>\n",
    "src/shardgrad/core/CMakeLists.txt": HASH + "target_sources(s PRIVATE core.cpp PUBLIC FILE_SET HEADERS FILES core.hpp)\n",
    "src/shardgrad/core/core.hpp": SLASHES + "#pragma once\n#include <vector>\n",
    "src/shardgrad/core/core.cpp": SLASHES + '#include <shardgrad/core/core.hpp>\nauto speed = std::getenv("SHARDGRAD_SPEED");\n',
    "src/shardgrad/comm/CMakeLists.txt": HASH + "target_sources(s PRIVATE mpi/transport.cpp mpi/transport.hpp PUBLIC FILE_SET HEADERS FILES"
                                                " comm.hpp)\ntarget_sources(m INTERFACE FILE_SET HEADERS FILES mpi.hpp)\n",
    "src/shardgrad/comm/comm.hpp": SLASHES + "#pragma once\n#include <shardgrad/core/core.hpp>\n",
    "src/shardgrad/comm/mpi.hpp": SLASHES + "#pragma once\n#include <mpi.h>\n#include <shardgrad/comm/comm.hpp>\n",
    "src/shardgrad/comm/mpi/transport.hpp": SLASHES + "#pragma once\n#include <mpi.h>\n",
    "src/shardgrad/comm/mpi/transport.cpp": SLASHES + '#include <shardgrad/comm/mpi/transport.hpp>\n#include "pieces.hpp"\n',
    "src/shardgrad/comm/mpi/pieces.hpp": SLASHES + '#pragma once\n#include "../lane.hpp"\n',
    "src/shardgrad/comm/lane.hpp": SLASHES + "#pragma once\n#include <shardgrad/comm/comm.hpp>\n",
    "src/shardgrad/loss/CMakeLists.txt": HASH + "target_sources(s PRIVATE loss.cpp PUBLIC FILE_SET HEADERS FILES loss.hpp)\n",
    "src/shardgrad/loss/loss.hpp": SLASHES + "#pragma once\n#include <shardgrad/comm/comm.hpp>\n",
    "src/shardgrad/loss/loss.cpp": KERNEL,
    "src/shardgrad/grad/CMakeLists.txt": HASH + "target_sources(s PUBLIC FILE_SET HEADERS FILES grad.hpp)\n",
    "src/shardgrad/grad/grad.hpp": SLASHES + "#pragma once\n",
    "unit_tests/loss/CMakeLists.txt": HASH + "shardgrad_add_test(NAME loss SOURCES loss_test.cpp)\n",
    "unit_tests/loss/loss_test.cpp": SLASHES,
}


def broken_rules(changes):
    """The rules that are reported for the good tree with these files changed; None as text removes the file."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**GOOD, **changes}.items():
            if text is not None:
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exit_code = house_rules.main([folder])
    rules = {line.split(": ")[1] for line in output.getvalue().splitlines() if line}
    assert exit_code == (1 if rules else 0), (exit_code, output.getvalue())
    return rules


class HouseRules(unittest.TestCase):
    def with_line(self, name, line):
        return {name: GOOD[name] + line + "\n"}

    def test_good_tree_passes(self):
        self.assertEqual(broken_rules({}), set())

    def test_upward_and_sideward_includes(self):
        for name, include in [("src/shardgrad/core/core.hpp", "shardgrad/comm/comm.hpp"),
                              ("src/shardgrad/comm/mpi/transport.cpp", "shardgrad/loss/loss.hpp"),
                              ("src/shardgrad/loss/loss.cpp", "shardgrad/grad/grad.hpp"),
                              ("src/shardgrad/grad/grad.hpp", "shardgrad/loss/loss.hpp")]:
            with self.subTest(name):
                self.assertEqual(broken_rules(self.with_line(name, f"#include <{include}>")), {"includes"})

    def test_quotes_for_what_is_not_a_private_header_of_the_room(self):
        for name in ["loss.hpp", "../comm/lane.hpp", "nowhere.hpp"]:
            with self.subTest(name):
                self.assertEqual(broken_rules(self.with_line("src/shardgrad/loss/loss.cpp", f'#include "{name}"')),
                                 {"includes"})

    def test_unknown_room(self):
        files = {"src/shardgrad/attic/CMakeLists.txt": HASH + "old.hpp\n",
                 "src/shardgrad/attic/old.hpp": SLASHES + "#pragma once\n#include <shardgrad/core/core.hpp>\n"}
        self.assertEqual(broken_rules(files), {"includes"})

    def test_vendor_header_in_public_header(self):
        for header in ["mpi.h", "nccl.h", "cuda_runtime.h"]:
            with self.subTest(header):
                self.assertEqual(broken_rules(self.with_line("src/shardgrad/comm/comm.hpp", f"#include <{header}>")),
                                 {"public-headers"})
        self.assertEqual(broken_rules(self.with_line("src/shardgrad/comm/mpi.hpp", "#include <nccl.h>")), {"public-headers"})

    def test_public_header_includes_private_or_opt_in_header(self):
        for header in ["<shardgrad/comm/mpi/transport.hpp>", "<shardgrad/comm/mpi.hpp>", '"lane.hpp"']:
            with self.subTest(header):
                self.assertEqual(broken_rules(self.with_line("src/shardgrad/comm/comm.hpp", f"#include {header}")),
                                 {"public-headers"})

    def test_labels(self):
        for good, bad in [('"shardgrad::loss::kernel", policy', '"loss::kernel", policy'),
                          ('"shardgrad::loss::kernel", policy', "policy"),
                          ('"shardgrad::loss::view"', '"view"'),
                          ('"shardgrad::loss::other"', '"other"'),
                          ('"shardgrad::loss::end"', '"end"')]:
            with self.subTest(bad):
                self.assertIn(good, KERNEL)
                self.assertEqual(broken_rules({"src/shardgrad/loss/loss.cpp": KERNEL.replace(good, bad)}), {"labels"})

    def test_region_label(self):
        line = 'void f() { Kokkos::Profiling::ScopedRegion region("loss"); }'
        self.assertEqual(broken_rules(self.with_line("src/shardgrad/loss/loss.cpp", line)), {"labels"})

    def test_undocumented_option_and_variable(self):
        for name in ["FAST", "WAY", "SPEED", "PLACE"]:
            with self.subTest(name):
                readme = GOOD["README.md"].replace(f"SHARDGRAD_{name}", "it")
                self.assertEqual(broken_rules({"README.md": readme}), {"documented"})

    def test_documents_may_be_split(self):
        self.assertEqual(broken_rules({"README.md": None, "docs/options.md": GOOD["README.md"]}), set())

    def test_missing_spdx_line(self):
        for name in ["src/shardgrad/core/core.hpp", "unit_tests/loss/loss_test.cpp", "cmake/Module.cmake", "docker/run"]:
            with self.subTest(name):
                text = GOOD[name].replace("SPDX-License-Identifier", "License")
                self.assertEqual(broken_rules({name: text}), {"spdx"})

    def test_file_that_nobody_builds(self):
        for name in ["src/shardgrad/core/more.cpp", "src/shardgrad/core/more.hpp", "unit_tests/loss/more_test.cpp"]:
            with self.subTest(name):
                self.assertEqual(broken_rules({name: SLASHES + "#pragma once\n"}), {"listed"})

    def test_header_without_guard(self):
        text = GOOD["src/shardgrad/core/core.hpp"].replace("#pragma once", "")
        self.assertEqual(broken_rules({"src/shardgrad/core/core.hpp": text}), {"guards"})

    def test_unfinished(self):
        mark = "// TO" + "DO: later"
        self.assertEqual(broken_rules(self.with_line("src/shardgrad/core/core.cpp", mark)), {"unfinished"})


if __name__ == "__main__":
    unittest.main()
