// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Model averaging: means of parameters in buckets, and the outer step of DiLoCo in float or double.
#include <shardgrad/comm/reduce.hpp>
#include <shardgrad/core/elementwise.hpp>
#include <shardgrad/core/error.hpp>
#include <shardgrad/grad/model_averaging.hpp>

#include <cstring>
#include <set>
#include <utility>

namespace shardgrad {

namespace {

void require_valid(const std::vector<ModelParameter>& parameters, double bucket_cap_mb, const std::string& call) {
  if (!(bucket_cap_mb > 0.0))
    throw InvalidArgument(call + ": bucket_cap_mb is " + std::to_string(bucket_cap_mb) + "; wanted is more than 0");
  std::set<std::string> names;
  for (const ModelParameter& parameter : parameters) {
    const TensorRef& values = parameter.values;
    if (!is_floating(values.type))
      throw InvalidArgument(call + ": parameter \"" + parameter.name + "\" is of " + std::string(name_of(values.type)) +
                            ", which has no mean");
    if (values.memory != MemoryKind::host)
      throw InvalidArgument(call + ": parameter \"" + parameter.name + "\" is not in host memory");
    if (!names.insert(parameter.name).second)
      throw InvalidArgument(call + ": two parameters are named \"" + parameter.name + '"');
  }
}

void require_period(std::uint64_t period, const std::string& call) {
  if (period == 0) throw InvalidArgument(call + ": the period is 0 steps; wanted is 1 or more");
}

Buffer buffer_of(std::vector<std::byte>& bytes, DataType type) {
  return {bytes.data(), bytes.size() / size_of(type), type, MemoryKind::host};
}

/// The mean over the ranks, in place.
void average_bucket(const Communicator& comm, std::vector<std::byte>& bytes, DataType type) {
  const Buffer flat = buffer_of(bytes, type);
  comm.run("shardgrad::average_parameters", [&](Transport& transport) {
    OrderedReduceOptions options;
    options.scale = 1.0 / comm.size();
    options.wire = {type, type};
    ReduceWorkspace workspace;
    ordered_all_reduce(transport, flat, flat, options, workspace);
  });
}

std::uint64_t steps_in(const StateEntries& from, const std::string& prefix) {
  std::uint64_t steps = 0;
  const StateEntry* entry = from.find(prefix + "steps", DataType::uint64, 1);
  if (entry != nullptr) std::memcpy(&steps, entry->bytes.data(), sizeof steps);
  return steps;
}

}  // namespace

void average_parameters(const Communicator& comm, const std::vector<ModelParameter>& parameters, double bucket_cap_mb) {
  require_valid(parameters, bucket_cap_mb, "average_parameters");
  const double cap_bytes = bucket_cap_mb * 1024 * 1024;
  std::vector<std::byte> bytes;
  for (std::size_t begin = 0; begin < parameters.size();) {
    const DataType type = parameters[begin].values.type;
    const auto bytes_of = [&](std::size_t k) { return parameters[k].values.count() * size_of(type); };
    std::size_t end = begin + 1, total = bytes_of(begin);
    while (end < parameters.size() && parameters[end].values.type == type &&
           static_cast<double>(total + bytes_of(end)) <= cap_bytes)
      total += bytes_of(end++);
    bytes.resize(total);
    std::size_t offset = 0;
    const auto part = [&](std::size_t k) {
      const Buffer result{bytes.data() + offset, parameters[k].values.count(), type, MemoryKind::host};
      offset += bytes_of(k);
      return result;
    };
    for (std::size_t k = begin; k < end; ++k) pack(parameters[k].values, part(k));
    average_bucket(comm, bytes, type);
    offset = 0;
    for (; begin < end; ++begin) unpack(part(begin), parameters[begin].values);
  }
}

PeriodicModelAverager::PeriodicModelAverager(Communicator comm, const PeriodicOptions& options)
    : comm_(std::move(comm)), options_(options) {
  require_period(options.period, "PeriodicModelAverager");
}

bool PeriodicModelAverager::average_parameters(const std::vector<ModelParameter>& parameters) {
  const std::uint64_t step = steps_;
  const bool is_due = step >= options_.warm_up_steps && (step - options_.warm_up_steps) % options_.period == 0;
  if (is_due) shardgrad::average_parameters(comm_, parameters, options_.bucket_cap_mb);
  ++steps_;
  return is_due;
}

void PeriodicModelAverager::save(const std::string& prefix, StateEntries& to) const {
  to.add(prefix + "steps", StateRule::replicated, DataType::uint64, &steps_, 1);
}

void PeriodicModelAverager::load(const std::string& prefix, const StateEntries& from) {
  steps_ = steps_in(from, prefix);
}

/// What the outer optimizer keeps of a parameter, in the type that it calculates in.
struct DiLoCo::Outer {
  DataType type = DataType::float32;
  std::vector<std::byte> parameter;
  std::vector<std::byte> velocity;
};

namespace {

template <class T>
void outer_step(std::vector<std::byte>& parameter, std::vector<std::byte>& velocity, const std::vector<std::byte>& mean,
                const DiLoCoOptions& options) {
  auto* const p = reinterpret_cast<T*>(parameter.data());
  auto* const v = reinterpret_cast<T*>(velocity.data());
  const auto* const q = reinterpret_cast<const T*>(mean.data());
  const auto momentum = static_cast<T>(options.momentum), learning_rate = static_cast<T>(options.learning_rate);
  for (std::size_t i = 0; i < mean.size() / sizeof(T); ++i) {
    const T gradient = p[i] - q[i];
    v[i] = momentum * v[i] + gradient;
    p[i] -= learning_rate * (gradient + momentum * v[i]);
  }
}

}  // namespace

DiLoCo::DiLoCo(Communicator comm, std::vector<ModelParameter> parameters, const DiLoCoOptions& options)
    : comm_(std::move(comm)), parameters_(std::move(parameters)), options_(options) {
  require_period(options.period, "DiLoCo");
  require_valid(parameters_, options.bucket_cap_mb, "DiLoCo");
  for (const ModelParameter& parameter : parameters_) {
    Outer outer;
    outer.type = parameter.values.type == DataType::float64 ? DataType::float64 : DataType::float32;
    outer.parameter.resize(parameter.values.count() * size_of(outer.type));
    outer.velocity.resize(outer.parameter.size());
    pack(parameter.values, buffer_of(outer.parameter, outer.type));
    outer_.push_back(std::move(outer));
  }
}

DiLoCo::~DiLoCo() = default;

bool DiLoCo::step() {
  if (++steps_ % options_.period != 0) return false;
  // The mean in the outer type: what 16 bits would round away is the outer gradient.
  std::vector<std::vector<std::byte>> means(parameters_.size());
  std::vector<ModelParameter> new_parameters;
  for (std::size_t k = 0; k < parameters_.size(); ++k) {
    const TensorRef& values = parameters_[k].values;
    means[k].resize(outer_[k].parameter.size());
    const Buffer mean = buffer_of(means[k], outer_[k].type);
    pack(values, mean);
    TensorRef flat{mean.data, mean.type, MemoryKind::host, 1, {}, {}};
    flat.extents[0] = mean.count;
    flat.strides[0] = 1;
    new_parameters.push_back({parameters_[k].name, flat});
  }
  average_parameters(comm_, new_parameters, options_.bucket_cap_mb);
  for (std::size_t k = 0; k < parameters_.size(); ++k) {
    Outer& outer = outer_[k];
    (outer.type == DataType::float64 ? outer_step<double> : outer_step<float>)(outer.parameter, outer.velocity,
                                                                               means[k], options_);
    unpack(buffer_of(outer.parameter, outer.type), parameters_[k].values);
  }
  return true;
}

void DiLoCo::save(const std::string& prefix, StateEntries& to) const {
  to.add(prefix + "steps", StateRule::replicated, DataType::uint64, &steps_, 1);
  const std::string parameter_prefix = prefix + "parameter/", velocity_prefix = prefix + "velocity/";
  for (std::size_t k = 0; k < parameters_.size(); ++k) {
    const std::string& name = parameters_[k].name;
    const std::size_t count = parameters_[k].values.count();
    to.add(parameter_prefix + name, StateRule::replicated, outer_[k].type, outer_[k].parameter.data(), count);
    to.add(velocity_prefix + name, StateRule::replicated, outer_[k].type, outer_[k].velocity.data(), count);
  }
}

void DiLoCo::load(const std::string& prefix, const StateEntries& from) {
  const std::uint64_t steps = steps_in(from, prefix);
  std::vector<Outer> loaded;
  for (std::size_t k = 0; k < parameters_.size(); ++k) {
    const std::size_t count = parameters_[k].values.count();
    const DataType type = outer_[k].type;
    const StateEntry* parameter = from.find(prefix + "parameter/" + parameters_[k].name, type, count);
    const StateEntry* velocity = from.find(prefix + "velocity/" + parameters_[k].name, type, count);
    Outer outer{type, std::vector<std::byte>(count * size_of(type)), std::vector<std::byte>(count * size_of(type))};
    if (parameter != nullptr)
      outer.parameter = parameter->bytes;
    else
      pack(parameters_[k].values, buffer_of(outer.parameter, type));
    if (velocity != nullptr) outer.velocity = velocity->bytes;
    loaded.push_back(std::move(outer));
  }
  outer_ = std::move(loaded);
  steps_ = steps;
}

}  // namespace shardgrad
