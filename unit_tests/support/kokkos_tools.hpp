// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Listens to Kokkos through its Tools callbacks: which allocations, fences, kernels, copies and regions there were.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace support {

enum class KokkosEventKind {
  allocate,
  deallocate,
  global_fence,    ///< Kokkos::fence(): every execution space waits
  instance_fence,  ///< the fence of one execution space instance
  kernel,          ///< parallel_for, parallel_reduce or parallel_scan
  deep_copy,
  region
};

[[nodiscard]] const char* to_string(KokkosEventKind kind);

struct KokkosEvent {
  KokkosEventKind kind;
  std::string label;
  std::uint64_t bytes = 0;      ///< of an allocation, deallocation or copy
  std::uint32_t device_id = 0;  ///< of a kernel or fence, as Kokkos Tools encode space, device and instance
};

/// Records while it lives; the tool that was there before comes back afterwards. One at a time. Threads may launch
/// kernels meanwhile.
class KokkosRecorder {
 public:
  KokkosRecorder();
  ~KokkosRecorder();
  KokkosRecorder(const KokkosRecorder&) = delete;
  KokkosRecorder& operator=(const KokkosRecorder&) = delete;

  /// Forgets what was recorded so far: a loop's first step, for example.
  void clear();

  [[nodiscard]] std::vector<KokkosEvent> events() const;
  [[nodiscard]] std::vector<KokkosEvent> events(KokkosEventKind kind) const;
  [[nodiscard]] std::size_t count(KokkosEventKind kind) const;

  /// The events whose label does not start with `prefix`, as text for a failure message; empty if there are none.
  /// Copies are left out, they carry the labels of the views on either side; so are fences and kernels of Kokkos
  /// itself.
  [[nodiscard]] std::string labels_without_prefix(const std::string& prefix) const;

  /// One line per event, for failure messages.
  [[nodiscard]] static std::string describe(const std::vector<KokkosEvent>& events);
};

}  // namespace support
