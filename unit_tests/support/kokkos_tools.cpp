// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The recorder behind kokkos_tools.hpp. Kokkos takes plain functions as callbacks, so what they fill is global.
#include "support/kokkos_tools.hpp"

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace support {

namespace {

namespace Tools = Kokkos::Tools::Experimental;

std::mutex mutex;
std::vector<KokkosEvent> recorded;
bool recording = false;
Tools::EventSet callbacks_before;

void record(KokkosEvent event) {
  const std::lock_guard lock(mutex);
  if (recording) recorded.push_back(std::move(event));
}

void on_allocate(Kokkos_Profiling_SpaceHandle /*space*/, const char* label, const void* /*data*/, std::uint64_t bytes) {
  record({KokkosEventKind::allocate, label, bytes});
}

void on_deallocate(Kokkos_Profiling_SpaceHandle /*space*/, const char* label, const void* /*data*/,
                   std::uint64_t bytes) {
  record({KokkosEventKind::deallocate, label, bytes});
}

void on_kernel(const char* label, std::uint32_t device_id, std::uint64_t* /*kernel_id*/) {
  record({KokkosEventKind::kernel, label, 0, device_id});
}

void on_fence(const char* label, std::uint32_t device_id, std::uint64_t* /*fence_id*/) {
  if (std::string_view(label).starts_with("Kokkos::Tools::")) return;  // Kokkos fences for the sake of this tool
  // Instances count from 1; 0 stands for all instances of the space.
  const bool global = Tools::identifier_from_devid(device_id).instance_id == 0;
  record({global ? KokkosEventKind::global_fence : KokkosEventKind::instance_fence, label, 0, device_id});
}

void on_deep_copy(Kokkos_Profiling_SpaceHandle /*to_space*/, const char* to_label, const void* /*to*/,
                  Kokkos_Profiling_SpaceHandle /*from_space*/, const char* from_label, const void* /*from*/,
                  std::uint64_t bytes) {
  record({KokkosEventKind::deep_copy, std::string(to_label) + " <- " + from_label, bytes});
}

void on_region(const char* label) { record({KokkosEventKind::region, label}); }

}  // namespace

const char* to_string(KokkosEventKind kind) {
  switch (kind) {
    case KokkosEventKind::allocate:
      return "allocate";
    case KokkosEventKind::deallocate:
      return "deallocate";
    case KokkosEventKind::global_fence:
      return "global fence";
    case KokkosEventKind::instance_fence:
      return "instance fence";
    case KokkosEventKind::kernel:
      return "kernel";
    case KokkosEventKind::deep_copy:
      return "deep copy";
    case KokkosEventKind::region:
      return "region";
  }
  return "unknown";
}

KokkosRecorder::KokkosRecorder() {
  const std::lock_guard lock(mutex);
  if (recording) throw std::logic_error("a KokkosRecorder is active already");
  recording = true;
  recorded.clear();
  callbacks_before = Tools::get_callbacks();
  Tools::EventSet callbacks = callbacks_before;
  callbacks.allocate_data = on_allocate;
  callbacks.deallocate_data = on_deallocate;
  callbacks.begin_parallel_for = on_kernel;
  callbacks.begin_parallel_reduce = on_kernel;
  callbacks.begin_parallel_scan = on_kernel;
  callbacks.begin_fence = on_fence;
  callbacks.begin_deep_copy = on_deep_copy;
  callbacks.push_region = on_region;
  Tools::set_callbacks(callbacks);
}

KokkosRecorder::~KokkosRecorder() {
  Tools::set_callbacks(callbacks_before);
  const std::lock_guard lock(mutex);
  recording = false;
}

void KokkosRecorder::clear() {
  const std::lock_guard lock(mutex);
  recorded.clear();
}

std::vector<KokkosEvent> KokkosRecorder::events() const {
  const std::lock_guard lock(mutex);
  return recorded;
}

std::vector<KokkosEvent> KokkosRecorder::events(KokkosEventKind kind) const {
  std::vector<KokkosEvent> found = events();
  std::erase_if(found, [kind](const KokkosEvent& event) { return event.kind != kind; });
  return found;
}

std::size_t KokkosRecorder::count(KokkosEventKind kind) const { return events(kind).size(); }

std::string KokkosRecorder::labels_without_prefix(const std::string& prefix) const {
  std::vector<KokkosEvent> found = events();
  std::erase_if(found, [&prefix](const KokkosEvent& event) {
    return event.kind == KokkosEventKind::deep_copy || event.label.starts_with(prefix) ||
           event.label.starts_with("Kokkos::");
  });
  return describe(found);
}

std::string KokkosRecorder::describe(const std::vector<KokkosEvent>& events) {
  std::string text;
  for (const KokkosEvent& event : events) {
    text += std::string(to_string(event.kind)) + " \"" + event.label + "\"";
    if (event.bytes > 0) text += " of " + std::to_string(event.bytes) + " bytes";
    text += "\n";
  }
  return text;
}

}  // namespace support
