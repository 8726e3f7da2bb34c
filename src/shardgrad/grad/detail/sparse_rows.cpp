// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Three gathers (counts, rows, values), then every rank adds in the same order.
#include <shardgrad/core/elementwise.hpp>
#include <shardgrad/grad/detail/sparse_rows.hpp>

#include <cstring>
#include <numeric>
#include <string>
#include <utility>

namespace shardgrad::detail {

namespace {

/// Values of rows as T (float or double), to add them in.
template <class T>
std::vector<T> widened(const SparseRows& rows) {
  std::vector<T> wide(rows.rows.size() * rows.columns);
  convert(rows.values(), {wide.data(), wide.size(), data_type_of<T>, MemoryKind::host});
  return wide;
}

template <class T>
std::map<std::int64_t, std::vector<T>> coalesced(const SparseRows& part) {
  std::map<std::int64_t, std::vector<T>> sums;
  const auto values = widened<T>(part);
  for (std::size_t k = 0; k < part.rows.size(); ++k) {
    auto& sum = sums.try_emplace(part.rows[k], part.columns, T{0}).first->second;
    for (std::size_t j = 0; j < part.columns; ++j) sum[j] += values[k * part.columns + j];
  }
  return sums;
}

template <class T>
SparseRows mean_as(std::span<const SparseRows> parts, double divisor) {
  std::map<std::int64_t, std::vector<T>> sums;
  const std::size_t columns = parts.front().columns;
  for (const SparseRows& part : parts)
    for (const auto& [row, values] : coalesced<T>(part)) {
      auto& sum = sums.try_emplace(row, columns, T{0}).first->second;
      for (std::size_t j = 0; j < columns; ++j) sum[j] += values[j];
    }
  SparseRows mean;
  mean.columns = columns;
  mean.type = parts.front().type;
  std::vector<T> flat;
  for (const auto& [row, values] : sums) {
    mean.rows.push_back(row);
    flat.insert(flat.end(), values.begin(), values.end());
  }
  mean.bytes.resize(flat.size() * size_of(mean.type));
  convert({flat.data(), flat.size(), data_type_of<T>, MemoryKind::host}, mean.values(), 1.0 / divisor);
  return mean;
}

std::vector<std::size_t> offsets_of(const std::vector<std::size_t>& counts) {
  std::vector<std::size_t> offsets(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), std::size_t{0});
  return offsets;
}

SparseRows reduce(Transport& transport, SparseRows& own, double divisor) {
  const auto ranks = static_cast<std::size_t>(transport.size());
  const std::uint64_t mine = own.rows.size();
  std::vector<std::uint64_t> row_counts(ranks);
  transport
      .all_gather({&mine, 1, DataType::uint64, MemoryKind::host},
                  {row_counts.data(), ranks, DataType::uint64, MemoryKind::host})
      ->wait();
  const std::vector<std::size_t> counts(row_counts.begin(), row_counts.end());
  const auto offsets = offsets_of(counts);
  SparseRows all;
  all.columns = own.columns;
  all.type = own.type;
  all.rows.resize(offsets.back() + counts.back());
  transport
      .all_gather_v({own.rows.data(), own.rows.size(), DataType::int64, MemoryKind::host},
                    {all.rows.data(), all.rows.size(), DataType::int64, MemoryKind::host}, counts, offsets)
      ->wait();
  std::vector<std::size_t> value_counts = counts;
  for (std::size_t& count : value_counts) count *= own.columns;
  all.bytes.resize(all.rows.size() * all.columns * size_of(all.type));
  transport.all_gather_v(own.values(), all.values(), value_counts, offsets_of(value_counts))->wait();

  std::vector<SparseRows> parts(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto row = static_cast<std::ptrdiff_t>(offsets[r]);
    const auto row_bytes = static_cast<std::ptrdiff_t>(all.columns * size_of(all.type));
    const auto count = static_cast<std::ptrdiff_t>(counts[r]);
    parts[r].columns = all.columns;
    parts[r].type = all.type;
    parts[r].rows.assign(all.rows.begin() + row, all.rows.begin() + row + count);
    parts[r].bytes.assign(all.bytes.begin() + row * row_bytes, all.bytes.begin() + (row + count) * row_bytes);
  }
  return mean_of_rows(parts, divisor);
}

}  // namespace

SparseRows mean_of_rows(std::span<const SparseRows> parts, double divisor) {
  return parts.front().type == DataType::float64 ? mean_as<double>(parts, divisor) : mean_as<float>(parts, divisor);
}

SparseGradients::SparseGradients(const std::vector<GradParameter>& parameters) {
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (!parameters[p].is_sparse) continue;
    Entry& entry = entries_[p];
    entry.name = parameters[p].name;
    entry.row_count = parameters[p].gradient.extents[0];
    for (SparseRows* rows : {&entry.pending, &entry.result}) {
      rows->columns = parameters[p].gradient.extents[1];
      rows->type = parameters[p].gradient.type;
    }
  }
}

void SparseGradients::add(std::size_t parameter, std::span<const std::int64_t> rows, ConstBuffer values) {
  Entry& entry = entries_.at(parameter);
  const std::string call = "Reducer::sparse_gradient_ready: \"" + entry.name + "\": ";
  SparseRows& pending = entry.pending;
  if (values.type != pending.type || values.memory != MemoryKind::host || values.count != rows.size() * pending.columns)
    throw InvalidArgument(call + std::to_string(values.count) + " values of type " + std::string(name_of(values.type)) +
                          ", but " + std::to_string(rows.size()) + " rows need " +
                          std::to_string(rows.size() * pending.columns) + " of type " +
                          std::string(name_of(pending.type)) + " in host memory");
  for (const std::int64_t row : rows)
    if (row < 0 || static_cast<std::uint64_t>(row) >= entry.row_count)
      throw InvalidArgument(call + "row " + std::to_string(row) + " of " + std::to_string(entry.row_count));
  pending.rows.insert(pending.rows.end(), rows.begin(), rows.end());
  const std::size_t before = pending.bytes.size();
  const std::size_t added = values.count * size_of(values.type);
  pending.bytes.resize(before + added);
  if (added > 0) std::memcpy(pending.bytes.data() + before, values.data, added);
}

void SparseGradients::begin_pass() {
  for (auto& [parameter, entry] : entries_) entry.pending_before = entry.pending.rows.size();
}

void SparseGradients::start(const Communicator& comm, double divisor) {
  for (auto& [parameter, entry] : entries_) {
    entry.next = std::make_shared<SparseRows>(entry.pending);
    entry.work = comm.enqueue("shardgrad::Reducer::sparse_rows", [rows = entry.next, divisor](Transport& transport) {
      *rows = reduce(transport, *rows, divisor);
    });
  }
}

void SparseGradients::wait() const {
  for (const auto& [parameter, entry] : entries_) entry.work.wait();
}

void SparseGradients::accept(const std::vector<bool>& unused) {
  for (auto& [parameter, entry] : entries_) {
    if (unused.empty() || !unused[parameter]) entry.result = std::move(*entry.next);
    entry.pending.rows.clear();
    entry.pending.bytes.clear();
  }
}

void SparseGradients::give_up_pass() {
  for (auto& [parameter, entry] : entries_) {
    entry.pending.rows.resize(entry.pending_before);
    entry.pending.bytes.resize(entry.pending_before * entry.pending.columns * size_of(entry.pending.type));
  }
}

}  // namespace shardgrad::detail
