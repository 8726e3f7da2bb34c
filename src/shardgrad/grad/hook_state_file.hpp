// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Hook state in files: saved and loaded by all ranks together, also by another number of ranks.
#pragma once

#include <shardgrad/comm/communicator.hpp>
#include <shardgrad/grad/grad_bucket.hpp>
#include <shardgrad/grad/hook.hpp>

#include <string>
#include <vector>

namespace shardgrad {

// `file` lies where every rank can read and write. It holds what the parts have in common; the part of rank r in
// generation g is file.g.r. Numbers are in the machine's byte order. Thread rule: between passes, while no work of the
// hook is under way. Collective over the communicator that the hook reduces over; an error of one rank is thrown by
// all, with one text.

/// Saves what `hook` remembers (nothing, for a hook without state). Each rank writes its part beside the parts that are
/// there and renames it; rank 0 writes `file` when all parts are complete; the old parts are removed last. So whenever
/// it is interrupted, `file` is whole and names whole parts, the old ones or the new ones. `parameters` are those of
/// the Reducer, so that load_hook_state can tell another model.
/// \throws InvalidArgument for a file that cannot be written, or exists and is no hook state or a damaged one, which is
/// left alone.
void save_hook_state(const Communicator& comm, const Hook& hook, const std::vector<GradParameter>& parameters,
                     const std::string& file);

/// Gives `hook` what was saved, in place of what it has. On the same number of ranks it goes on bitwise. On another
/// number W', with the W ranks of the file, an entry whose mean over the ranks counts becomes
/// W' * sum over w of |[w/W, (w+1)/W) and [r/W', (r+1)/W')| * entry_w on rank r, which has the same mean; one whose sum
/// counts becomes W times the same sum of overlaps; both are calculated in double, and a rank reads the parts that it
/// overlaps with, one at a time.
/// \throws InvalidArgument for a file that cannot be read, is no hook state, is cut short or damaged, is of a format
/// that this library does not know or of a machine with another byte order, or was saved by another hook or for other
/// parameters. The state is then what it was.
void load_hook_state(const Communicator& comm, const Hook& hook, const std::vector<GradParameter>& parameters,
                     const std::string& file);

/// Removes `file` and its parts. Nothing where there is none. \throws InvalidArgument for a file that is no hook state.
void remove_hook_state(const Communicator& comm, const std::string& file);

}  // namespace shardgrad
