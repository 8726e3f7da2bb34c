// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// OptimizerSlots: what an optimizer remembers of each parameter, and the walk over a parameter's elements in blocks.
#pragma once

#include <shardgrad/comm/detail/scratch.hpp>
#include <shardgrad/grad/optimizer.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace shardgrad::detail {

/// A block of one parameter in the arithmetic type.
template <class Lane>
struct OptimizerBlock {
  std::size_t count = 0;
  Lane* value = nullptr;
  const Lane* gradient = nullptr;
  Lane* const* slots = nullptr;  ///< one array for each slot, in the order of their names
};

/// A derived class says how a block changes. Each slot is an array of the parameter's count, zeros at first.
class OptimizerSlots : public OptimizerStep {
 public:
  void apply(const std::string& name, const TensorRef& value, const TensorRef& gradient) override;
  double learning_rate() const override { return learning_rate_; }
  void set_learning_rate(double learning_rate) override;
  void save(const std::string& prefix, StateEntries& to) const override;
  void load(const std::string& prefix, const StateEntries& from) override;

 protected:
  OptimizerSlots(std::string optimizer, double learning_rate, std::vector<std::string> slots, bool master_copy);

  /// `step` counts from 1.
  virtual void update(std::uint64_t step, const OptimizerBlock<float>& block) const = 0;
  virtual void update(std::uint64_t step, const OptimizerBlock<double>& block) const = 0;

 private:
  /// Of one parameter.
  struct Memory {
    Memory(DataType lane_type, std::size_t count_, std::size_t slot_count, bool has_master_copy);
    DataType type;
    std::size_t count;
    bool has_master;
    std::uint64_t steps = 0;
    std::vector<Scratch> memory;
    std::vector<Buffer> slots;  ///< the last one is the master copy, where there is one
  };

  template <class Lane>
  void apply_as(Memory& memory, const TensorRef& value, const TensorRef& gradient) const;

  std::string optimizer_;
  double learning_rate_ = 0.0;
  std::vector<std::string> slot_names_;
  bool master_copy_;
  std::map<std::string, Memory> memories_;
};

}  // namespace shardgrad::detail
