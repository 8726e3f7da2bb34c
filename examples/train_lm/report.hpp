// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The report at the end of a run, and the files of the curve. For rank 0.
#pragma once

#include "trainer.hpp"

#include <string>

namespace train_lm {

/// What the report says beside the outcome.
struct RunDescription {
  std::string mesh;
  std::string transport;
  std::string hook;
  std::string hook_report;  ///< what it says of its work; may be empty
  int ranks = 1;
};

/// \throws UsageError if a file of the report or the checkpoint could not be written later. Leaves nothing behind.
void require_writable(const Options& options);

/// Writes REPORT.csv and REPORT.svg. \throws UsageError.
void write_curve(const Options& options, const Corpus& corpus, const RunDescription& run, const Outcome& outcome);

/// Several lines for stdout.
std::string report_text(const Options& options, const Corpus& corpus, const RunDescription& run,
                        const Outcome& outcome);

}  // namespace train_lm
