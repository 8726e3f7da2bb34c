// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <shardgrad/core/detail/lanes.hpp>
#include <shardgrad/core/elementwise.hpp>
#include <shardgrad/core/error.hpp>
#include <shardgrad/grad/detail/optimizer_slots.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace shardgrad::detail {

namespace {

constexpr const char* master_name = "master";

/// "PREFIXquantity/parameter"
std::string entry_name(const std::string& prefix, const std::string& quantity, const std::string& parameter) {
  std::string name = prefix;
  return name.append(quantity).append("/").append(parameter);
}

/// lanes[i] = element first + i of the row-major order.
template <class Lane>
void load_tensor(const TensorRef& tensor, std::size_t first, std::size_t count, Lane* lanes) {
  if (tensor.is_row_major_contiguous()) return load_lanes(tensor.type, tensor.data, first, count, lanes);
  for (std::size_t i = 0; i < count; ++i)
    lanes[i] = load_element<Lane>(tensor.type, tensor.data, tensor.offset_of(first + i));
}

template <class Lane>
void store_tensor(const TensorRef& tensor, std::size_t first, std::size_t count, const Lane* lanes) {
  if (tensor.is_row_major_contiguous()) return store_lanes(tensor.type, tensor.data, first, count, lanes);
  for (std::size_t i = 0; i < count; ++i)
    store_element(tensor.type, tensor.data, tensor.offset_of(first + i), lanes[i]);
}

DataType lane_type_of(DataType type) { return type == DataType::float64 ? DataType::float64 : DataType::float32; }

}  // namespace

OptimizerSlots::Memory::Memory(DataType lane_type, std::size_t count_, std::size_t slot_count, bool has_master_copy)
    : type(lane_type), count(count_), has_master(has_master_copy) {
  for (std::size_t k = 0; k < slot_count + (has_master ? 1 : 0); ++k) {
    memory.emplace_back("shardgrad::optimizer::slot");
    slots.push_back(memory.back().buffer(count, type));
    fill_zero(slots.back());
  }
}

OptimizerSlots::OptimizerSlots(std::string optimizer, double learning_rate, std::vector<std::string> slots,
                               bool master_copy)
    : optimizer_(std::move(optimizer)), slot_names_(std::move(slots)), master_copy_(master_copy) {
  OptimizerSlots::set_learning_rate(learning_rate);
}

void OptimizerSlots::set_learning_rate(double learning_rate) {
  if (!(learning_rate >= 0.0 && std::isfinite(learning_rate)))
    throw InvalidArgument(optimizer_ + ": the learning rate is " + std::to_string(learning_rate) +
                          "; wanted is a finite number from 0 on");
  learning_rate_ = learning_rate;
}

void OptimizerSlots::apply(const std::string& name, const TensorRef& value, const TensorRef& gradient) {
  const std::string call = optimizer_ + ": parameter \"" + name + "\"";
  if (!is_floating(value.type) || !is_floating(gradient.type))
    throw InvalidArgument(call + " is of " + std::string(name_of(value.type)) + ", its gradient of " +
                          std::string(name_of(gradient.type)) + "; wanted are floating types");
  if (value.memory != MemoryKind::host || gradient.memory != MemoryKind::host)
    throw InvalidArgument(call + " is in device memory; wanted is host memory");
  if (value.rank != gradient.rank ||
      !std::equal(value.extents.begin(), value.extents.begin() + value.rank, gradient.extents.begin()))
    throw InvalidArgument(call + " has " + std::to_string(value.count()) + " elements, its gradient " +
                          std::to_string(gradient.count()) + ", or other extents");
  const DataType type = lane_type_of(value.type);
  const bool has_master = master_copy_ && is_16_bit_floating(value.type);
  Memory& memory = memories_.try_emplace(name, type, value.count(), slot_names_.size(), has_master).first->second;
  if (memory.type != type || memory.count != value.count() || memory.has_master != has_master)
    throw InvalidArgument(call + " has " + std::to_string(value.count()) + " elements of " +
                          std::string(name_of(value.type)) + "; remembered are " + std::to_string(memory.count) +
                          " of " + std::string(name_of(memory.type)) +
                          (memory.has_master ? " with a master copy" : " without a master copy"));
  if (has_master && memory.steps == 0) pack(value, memory.slots.back());
  ++memory.steps;
  if (type == DataType::float64)
    apply_as<double>(memory, value, gradient);
  else
    apply_as<float>(memory, value, gradient);
}

template <class Lane>
void OptimizerSlots::apply_as(Memory& memory, const TensorRef& value, const TensorRef& gradient) const {
  Lane values[block_count], gradients[block_count];
  std::vector<Lane*> slots(memory.slots.size());
  for (std::size_t first = 0; first < memory.count; first += block_count) {
    const std::size_t count = std::min(block_count, memory.count - first);
    for (std::size_t k = 0; k < slots.size(); ++k) slots[k] = static_cast<Lane*>(memory.slots[k].data) + first;
    Lane* const master = memory.has_master ? slots.back() : nullptr;
    if (master == nullptr) load_tensor(value, first, count, values);
    load_tensor(gradient, first, count, gradients);
    update(
        memory.steps,
        {.count = count, .value = master != nullptr ? master : values, .gradient = gradients, .slots = slots.data()});
    store_tensor(value, first, count, master != nullptr ? master : values);
  }
}

void OptimizerSlots::save(const std::string& prefix, StateEntries& to) const {
  for (const auto& [name, memory] : memories_) {
    if (memory.slots.empty()) continue;  // the number of steps alone changes nothing
    to.add(entry_name(prefix, "step", name), StateRule::replicated, DataType::uint64, &memory.steps, 1);
    for (std::size_t k = 0; k < memory.slots.size(); ++k) {
      const std::string& quantity = k < slot_names_.size() ? slot_names_[k] : master_name;
      to.add(entry_name(prefix, quantity, name), StateRule::replicated, memory.type, memory.slots[k].data,
             memory.count);
    }
  }
}

void OptimizerSlots::load(const std::string& prefix, const StateEntries& from) {
  const std::string begin = prefix + "step/";
  std::map<std::string, Memory> memories;
  for (const StateEntry& entry : from.all()) {
    if (!entry.name.starts_with(begin)) continue;
    const std::string name = entry.name.substr(begin.size());
    std::vector<const StateEntry*> slots;
    for (const std::string& quantity : slot_names_) {
      const std::string wanted = entry_name(prefix, quantity, name);
      slots.push_back(from.find(wanted));
      if (slots.back() == nullptr) throw InvalidArgument("HookState: there is no \"" + wanted + "\"");
    }
    const StateEntry* master = from.find(entry_name(prefix, master_name, name));
    if (master != nullptr) slots.push_back(master);
    if (slots.empty()) continue;
    const DataType type = slots.front()->type;
    const std::size_t count = slots.front()->count();
    Memory& memory = memories.try_emplace(name, type, count, slot_names_.size(), master != nullptr).first->second;
    std::memcpy(&memory.steps, from.find(entry.name, DataType::uint64, 1)->bytes.data(), sizeof memory.steps);
    for (std::size_t k = 0; k < slots.size(); ++k) {
      if (lane_type_of(slots[k]->type) != slots[k]->type || slots[k]->type != type || slots[k]->count() != count)
        throw InvalidArgument("HookState: \"" + slots[k]->name + "\" has " + std::to_string(slots[k]->count()) +
                              " elements of " + std::string(name_of(slots[k]->type)) + ", \"" + slots.front()->name +
                              "\" " + std::to_string(count) + " of " + std::string(name_of(type)));
      if (count > 0) std::memcpy(memory.slots[k].data, slots[k]->bytes.data(), slots[k]->bytes.size());
    }
  }
  memories_ = std::move(memories);
}

}  // namespace shardgrad::detail
