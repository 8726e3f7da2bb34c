// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The collectives of the losses and their errors.
#include <shardgrad/loss/detail/loss_exchange.hpp>

#include <cmath>
#include <sstream>

namespace shardgrad::detail {

namespace {

/// Called by every rank of `comm` once all know that something is wrong.
[[noreturn]] void explain(const std::string& call, const Communicator& comm, const Finding& finding,
                          const std::vector<SharedFact>& facts) {
  comm.agree(finding.code, finding.text);
  for (const SharedFact& fact : facts) comm.require_equal(call + ": " + fact.name, fact.value);
  throw RankMismatch(call + ": the ranks gave different arguments");
}

void all_gather(const Communicator& comm, const std::string& label, const std::byte* send, std::size_t bytes,
                std::byte* gathered) {
  const Buffer receive{gathered, bytes * static_cast<std::size_t>(comm.size()), DataType::uint8, MemoryKind::host};
  comm.run(label, [&](Transport& transport) {
    transport.all_gather(ConstBuffer(send, bytes, DataType::uint8), receive)->wait();
  });
}

/// What a group of ranks that share their rows knows.
struct GroupTotals {
  RowTotals totals;
  std::uint64_t signature;
  std::uint64_t failed;
};

std::string text_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::none:
      return "none";
    case Reduction::sum:
      return "sum";
    case Reduction::mean:
      return "mean";
  }
  return std::to_string(static_cast<int>(reduction));
}

}  // namespace

LossGroup::LossGroup(const std::string& call, const DeviceMesh& mesh, const Placements& placements, int class_dimension,
                     const std::string& problem) {
  if (!mesh.valid()) throw InvalidArgument(call + ": " + problem);
  std::vector<std::size_t> class_dimensions;
  std::vector<std::size_t> row_dimensions;
  for (std::size_t k = 0; k < placements.size() && k < mesh.dimension_count(); ++k) {
    const auto* shard = std::get_if<Shard>(&placements[k]);
    if (shard == nullptr) continue;
    (shard->dimension == class_dimension ? class_dimensions : row_dimensions).push_back(k);
  }
  // Of a mesh of one dimension all ranks can be told, whatever this rank believes about its placement.
  if (mesh.dimension_count() == 1) {
    classes = mesh.along(0);
    return;
  }
  if (class_dimensions.size() != 1) throw InvalidArgument(call + ": " + problem);
  classes = mesh.along(class_dimensions.front());
  if (row_dimensions.empty()) return;
  rows = mesh.across(row_dimensions);
  place = " (rows of";
  for (const std::size_t k : row_dimensions)
    place += " " + mesh.dimension(k).name + "=" + std::to_string(mesh.coordinate(k));
  place += ")";
}

void exchange_rows(const std::string& call, const Communicator& comm, const Finding& finding, const Facts& facts,
                   const std::byte* send, std::size_t send_bytes, std::byte* gathered) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  bool right = true;
  try {
    all_gather(comm, "shardgrad::" + call + "::all_gather", send, send_bytes, gathered);
  } catch (const RankMismatch&) {  // of the sizes, on every rank
    right = false;
  }
  ExchangeHeader own;
  std::memcpy(&own, send, sizeof own);
  for (std::size_t r = 0; right && r < ranks; ++r) {
    ExchangeHeader header;
    std::memcpy(&header, gathered + r * send_bytes, sizeof header);
    right = header.code == ErrorCode::none && header.signature == own.signature;
  }
  if (!right) explain(call, comm, finding, facts());
}

void refuse_rows(const std::string& call, const Communicator& comm, const Finding& finding, const Facts& facts) {
  const ExchangeHeader header{0, finding.code, 0, 0.0};
  std::vector<std::byte> gathered(sizeof header * static_cast<std::size_t>(comm.size()));
  exchange_rows(call, comm, finding, facts, reinterpret_cast<const std::byte*>(&header), sizeof header,
                gathered.data());
  throw_error(finding.code, finding.text);  // not reached: the header tells everybody
}

RowTotals run_on_mesh(const std::string& call, const LossGroup& group, std::uint64_t signature, const Facts& facts,
                      const std::function<RowTotals()>& part) {
  if (!group.rows.valid()) return part();
  Finding finding;
  GroupTotals own{{}, signature, 0};
  try {
    own.totals = part();
  } catch (const InvalidArgument& error) {
    finding = {error.code(), error.what()};
  } catch (const RankMismatch& error) {
    finding = {error.code(), error.what()};
  }
  own.failed = finding ? 1 : 0;
  std::vector<GroupTotals> all(static_cast<std::size_t>(group.rows.size()));
  all_gather(group.rows, "shardgrad::" + call + "::add_totals", reinterpret_cast<const std::byte*>(&own), sizeof own,
             reinterpret_cast<std::byte*>(all.data()));
  RowTotals sum;
  bool right = true;
  for (const GroupTotals& other : all) {
    right = right && other.failed == 0 && other.signature == signature;
    sum.add(other.totals);
  }
  if (!right) explain(call, group.rows, finding, facts());
  return sum;
}

std::string number_text(double value) {
  std::ostringstream text;
  text.precision(17);
  text << value;
  return text.str();
}

std::string problem_of(const CrossEntropyOptions& options) {
  if (!(options.label_smoothing >= 0.0 && options.label_smoothing <= 1.0))
    return "label_smoothing must lie in [0, 1], not " + number_text(options.label_smoothing);
  if (!std::isfinite(options.z_loss)) return "z_loss must be finite, not " + number_text(options.z_loss);
  if (!(options.softcap >= 0.0 && std::isfinite(options.softcap)))
    return "softcap must be positive and finite, or 0 for none, not " + number_text(options.softcap);
  if (!std::isfinite(options.scale)) return "scale must be finite, not " + number_text(options.scale);
  return {};
}

Finding finding_of(const std::string& call, const TargetSummary& summary, std::int64_t class_count,
                   std::int64_t ignore_index, const std::string& place) {
  if (summary.bad_row == TargetSummary::no_row) return {};
  return {ErrorCode::invalid_argument, call + ": target " + std::to_string(summary.bad_value) + " in row " +
                                           std::to_string(summary.bad_row) + place + " is neither a class in [0, " +
                                           std::to_string(class_count) + ") nor ignore_index (" +
                                           std::to_string(ignore_index) + ")"};
}

std::string ranges_text(const ClassPartition& classes) {
  constexpr std::size_t most = 64;
  std::string text;
  for (std::size_t r = 0; r < classes.ranges().size() && r < most; ++r) {
    const ClassRange& range = classes.ranges()[r];
    text += (r == 0 ? "[" : " [") + std::to_string(range.begin) + ", " + std::to_string(range.end) + ")";
  }
  if (classes.ranges().size() > most) text += " ... with fingerprint " + std::to_string(classes.fingerprint());
  return text;
}

std::vector<SharedFact> facts_of(const CrossEntropyOptions& options) {
  return {
      {"reduction", text_of(options.reduction)},
      {"ignore_index", std::to_string(options.ignore_index)},
      {"label_smoothing", number_text(options.label_smoothing)},
      {"smoothing_formula", options.smoothing_formula == SmoothingFormula::uniform ? "uniform" : "exclude_target"},
      {"z_loss", number_text(options.z_loss)},
      {"softcap", number_text(options.softcap)},
      {"scale", number_text(options.scale)},
      {"empty_mean", options.empty_mean == EmptyMean::nan ? "nan" : "zero"},
      {"fused_chunk_bytes", std::to_string(options.fused_chunk_bytes)},
  };
}

void sign(Signature& signature, const CrossEntropyOptions& options) {
  signature.add(static_cast<std::uint64_t>(options.reduction))
      .add(options.ignore_index)
      .add(options.label_smoothing)
      .add(static_cast<std::uint64_t>(options.smoothing_formula))
      .add(options.z_loss)
      .add(options.softcap)
      .add(options.scale)
      .add(static_cast<std::uint64_t>(options.empty_mean))
      .add(static_cast<std::uint64_t>(options.fused_chunk_bytes));
}

}  // namespace shardgrad::detail
