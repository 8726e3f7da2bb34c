// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The whole library in one page: a linear classifier whose classes are sharded over "tp" and whose rows are sharded
// over "dp", trained on synthetic data. Run it with mpirun -n 1, 2, 3, 4, ...: the losses agree but for bfloat16's
// rounding.
#include <mpi.h>

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <cstdio>
#include <shardgrad/shardgrad.hpp>

namespace sg = shardgrad;
using Matrix = Kokkos::View<float**, Kokkos::LayoutRight>;
using Range = Kokkos::MDRangePolicy<Kokkos::Rank<2>>;

constexpr int all_rows = 240, features = 16, all_classes = 12, steps = 40;

// Each row has a bump at a place that tells its class, and a ripple that does not.
KOKKOS_FUNCTION float feature(int row, int f) {
  return (f == row % all_classes ? 1.0f : 0.0f) + 0.2f * Kokkos::sin(1.7f * float(row) + 0.9f * float(f));
}

bool train() {
  const int ranks = sg::Communicator::world().size();
  const int tp = ranks % 2 == 0 ? 2 : 1;
  sg::DeviceMesh mesh(sg::Communicator::world(), {{"dp", ranks / tp}, {"tp", tp}});
  const auto classes = sg::ClassPartition::chunked(all_classes, mesh["tp"]);  // which rank owns which classes
  const int dp = mesh["dp"].size(), dp_rank = mesh["dp"].rank();
  const int first_row = all_rows * dp_rank / dp, rows = all_rows * (dp_rank + 1) / dp - first_row;
  const int width = int(classes.local_size());

  Matrix input("input", rows, features), weight("weight", features, width), grad_weight("grad_weight", features, width);
  Matrix logits("logits", rows, width), grad_logits("grad_logits", rows, width);
  Kokkos::View<std::int64_t*> targets("targets", rows);
  Kokkos::parallel_for(
      "input", Range({0, 0}, {rows, features}), KOKKOS_LAMBDA(int i, int f) {
        input(i, f) = feature(first_row + i, f);
        targets(i) = (first_row + i) % all_classes;
      });

  // The gradients of the weight are averaged over "dp", in bfloat16 on the wire.
  sg::Reducer reducer(mesh["dp"], {{"weight", sg::tensor_ref_of(grad_weight)}});
  reducer.register_comm_hook(sg::hooks::bf16_compress());

  const Kokkos::DefaultExecutionSpace exec;
  float first_loss = 0, loss = 0;
  for (int step = 0; step < steps; ++step) {
    Kokkos::parallel_for(
        "logits", Range({0, 0}, {rows, width}), KOKKOS_LAMBDA(int i, int c) {
          float sum = 0;
          for (int f = 0; f < features; ++f) sum += input(i, f) * weight(f, c);
          logits(i, c) = sum;
        });

    // Rows are sharded over "dp", classes over "tp". One collective; the backward needs none.
    const sg::ShardedView sharded(logits, mesh, {sg::Shard{0}, sg::Shard{1}}, classes);
    const auto result = sg::cross_entropy(exec, sharded, targets);
    // The loss is the mean over the rows of all ranks; the reducer divides by dp once more.
    sg::cross_entropy_backward(exec, result, float(dp), grad_logits);

    Kokkos::parallel_for(
        "grad_weight", Range({0, 0}, {features, width}), KOKKOS_LAMBDA(int f, int c) {
          float sum = 0;
          for (int i = 0; i < rows; ++i) sum += input(i, f) * grad_logits(i, c);
          grad_weight(f, c) = sum;
        });
    reducer.gradient_ready(exec, 0);
    reducer.finish();  // grad_weight now holds the mean

    Kokkos::parallel_for(
        "update", Range({0, 0}, {features, width}),
        KOKKOS_LAMBDA(int f, int c) { weight(f, c) -= 10.0f * grad_weight(f, c); });
    Kokkos::deep_copy(loss, result.loss);
    if (step == 0) first_loss = loss;
    if (mesh.communicator().rank() == 0 && step % 10 == 0) std::printf("step %2d  loss %.4f\n", step, double(loss));
  }
  if (mesh.communicator().rank() == 0)
    std::printf("final    loss %.4f on %s\n", double(loss), mesh.to_string().c_str());
  return loss < 0.2f * first_loss;
}

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);  // where there is less, operations run inline
  bool learned = false;
  {
    const Kokkos::ScopeGuard kokkos(argc, argv);
    learned = train();
  }
  MPI_Finalize();
  return learned ? 0 : 1;
}
