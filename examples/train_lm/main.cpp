// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// train_lm: trains a language model whose loss is sharded over ranks. Start and end of MPI and Kokkos, and errors to
// exit codes: 0 done, 2 something that the user can put right (said once, by rank 0), 1 anything else.
#include "on_root.hpp"
#include "report.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>

namespace train_lm {
namespace {

/// Rank 0 reads and encodes; the classes go to all.
Corpus load_corpus(const Options& options, const shardgrad::Communicator& world) {
  Corpus corpus;
  on_root(world, [&] {
    require_writable(options);
    corpus = make_corpus(options);
    fmt::print("{}: {} tokens, {}\n", corpus.name, corpus.training.size() + corpus.validation.size(),
               corpus.description);
    std::fflush(stdout);
  });
  broadcast_from_root(world, corpus.training);
  broadcast_from_root(world, corpus.validation);
  corpus.classes = from_root(world, corpus.classes);
  corpus.vocabulary_fingerprint = from_root(world, corpus.vocabulary_fingerprint);
  corpus.text_fingerprint = from_root(world, corpus.text_fingerprint);
  return corpus;
}

/// Ends the job. Other ranks may be waiting for this one, and waiting for them in destructors could take for ever.
[[noreturn]] void end_job(const std::exception& error) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  fmt::print(stderr, "train_lm: rank {}: {}\n", rank, error.what());
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

void train(const Options& options) {
  const shardgrad::Communicator world = shardgrad::Communicator::world();
  const shardgrad::DeviceMesh mesh = make_mesh(world, options.mesh);
  const shardgrad::Hook hook = make_hook(options.hook, mesh["dp"]);
  const Corpus corpus = load_corpus(options, world);
  Trainer trainer(options, mesh, corpus, hook);
  if (!options.resume.empty()) trainer.resume();
  const std::string costs = trainer.hook_costs();
  if (world.rank() == 0) fmt::print("{}", costs);
  Outcome outcome;
  try {
    Progress progress(world.rank() == 0 ? options.progress : "none");
    outcome = trainer.run(progress);
  } catch (const UsageError&) {
    throw;
  } catch (const std::exception& error) {
    end_job(error);
  }
  const RunDescription run{mesh.to_string(), world.transport_name(), hook.name(),
                           hook.traits().report ? hook.traits().report() : "", world.size()};
  on_root(world, [&] {
    write_curve(options, corpus, run, outcome);
    fmt::print("{}", report_text(options, corpus, run, outcome));
    std::fflush(stdout);
  });
}

/// Kokkos starts after the command line was read: it would take --help for itself.
void run(const std::optional<Options>& options, const std::string& help, int rank) {
  if (!options) {
    if (rank == 0) fmt::print("{}", help);
    return;
  }
  const Kokkos::ScopeGuard kokkos;
  train(*options);
}

int exit_code_of(int argc, char** argv) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  try {
    std::string help;
    run(parse_options(argc, argv, help), help, rank);
    return 0;
  } catch (const UsageError& error) {  // the same on every rank
    if (rank == 0) fmt::print(stderr, "train_lm: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    end_job(error);
  }
}

}  // namespace
}  // namespace train_lm

int main(int argc, char** argv) {
  int thread_level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &thread_level);
  const int exit_code = train_lm::exit_code_of(argc, argv);
  MPI_Finalize();
  return exit_code;
}
