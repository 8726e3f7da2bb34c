// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The job that the harness runs in.
#include "support/job.hpp"

#include <unistd.h>

namespace support {

namespace {
SelfJob self_job;
Job* current_job = &self_job;
}  // namespace

void SelfJob::abort(int exit_code) { _exit(exit_code); }

Job& job() { return *current_job; }

void set_job(Job& job) { current_job = &job; }

}  // namespace support
