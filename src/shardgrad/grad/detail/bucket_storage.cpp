// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Buckets live where their gradients live. Packing runs on the thread of the backward pass: it reads what that thread
// has just written.
#include <shardgrad/core/elementwise.hpp>
#include <shardgrad/core/profiling.hpp>
#include <shardgrad/grad/detail/bucket_storage.hpp>

#include <Kokkos_Core.hpp>

#include <memory>

namespace shardgrad::detail {

namespace {

template <class MemorySpace>
FlatBuffer allocate(const BucketPlan::Bucket& bucket) {
  using Memory = Kokkos::View<std::byte*, MemorySpace>;
  auto memory = std::make_shared<Memory>(Kokkos::view_alloc("shardgrad::Reducer::bucket", Kokkos::WithoutInitializing),
                                         bucket.count * size_of(bucket.type));
  return {Buffer{memory->data(), bucket.count, bucket.type, bucket.memory}, memory};
}

}  // namespace

BucketStorage::BucketStorage(const BucketPlan& plan, const std::vector<GradParameter>& parameters)
    : plan_(&plan), parameters_(&parameters) {
  for (const auto& bucket : plan.buckets)
    flats_.push_back(bucket.memory == MemoryKind::host ? allocate<Kokkos::HostSpace>(bucket)
                                                       : allocate<Kokkos::DefaultExecutionSpace::memory_space>(bucket));
}

Buffer BucketStorage::part_of(std::size_t parameter) const {
  const auto [bucket, entry] = plan_->place_of[parameter];
  const BucketEntry& place = plan_->entries[bucket][entry];
  return flats_[bucket].buffer.slice(place.offset, place.count);
}

void BucketStorage::pack(std::size_t parameter) const {
  const ScopedRegion region("shardgrad::Reducer::pack");
  shardgrad::pack((*parameters_)[parameter].gradient, part_of(parameter));
}

void BucketStorage::clear(std::size_t parameter) const { fill_zero(part_of(parameter)); }

void BucketStorage::unpack(std::size_t bucket, ConstBuffer reduced) const {
  const ScopedRegion region("shardgrad::Reducer::unpack");
  for (const BucketEntry& entry : plan_->entries[bucket])
    shardgrad::unpack(reduced.slice(entry.offset, entry.count), (*parameters_)[entry.parameter].gradient);
}

}  // namespace shardgrad::detail
