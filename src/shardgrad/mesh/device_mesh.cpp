// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The grid of ranks, its communicators, and its text form.
#include <shardgrad/mesh/device_mesh.hpp>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace shardgrad {

namespace {

bool is_plain(std::string_view name) {
  return !name.empty() && std::ranges::none_of(name, [](char c) {
    return c == '=' || c == ',' || c == '"' || c == '\\' || c == ' ' || static_cast<unsigned char>(c) < 0x20;
  });
}

/// As the user wrote it when that can be read back, else in quotes, so that different dimensions never have one text.
std::string text_of(std::string_view name) {
  if (is_plain(name)) return std::string(name);
  std::string quoted = "\"";
  for (const char c : name) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

std::string text_of(const std::vector<MeshDimension>& dimensions) {
  std::string text;
  for (const MeshDimension& dimension : dimensions)
    text += (text.empty() ? "" : ",") + text_of(dimension.name) + "=" + std::to_string(dimension.size);
  return text;
}

/// What is wrong with names and sizes; empty if nothing.
std::string problem_of(const std::vector<MeshDimension>& dimensions) {
  if (dimensions.empty()) return "it has no dimension";
  std::set<std::string_view> names;
  for (const MeshDimension& dimension : dimensions) {
    if (dimension.name.empty()) return "a dimension has no name";
    if (!is_plain(dimension.name))
      return "the name " + text_of(dimension.name) + " has a space, a comma, an equals sign or a quote in it";
    if (!names.insert(dimension.name).second) return "the name " + dimension.name + " is there twice";
    if (dimension.size < 1) return "dimension " + dimension.name + " has size " + std::to_string(dimension.size);
  }
  return {};
}

/// The number of ranks of a mesh without a problem, or `limit` + 1 when it is above `limit`.
std::int64_t rank_count_of(const std::vector<MeshDimension>& dimensions, std::int64_t limit) {
  std::int64_t product = 1;
  for (const MeshDimension& dimension : dimensions) product = std::min(product * dimension.size, limit + 1);
  return product;
}

std::string names_of(const std::vector<MeshDimension>& dimensions) {
  std::string text;
  for (const MeshDimension& dimension : dimensions) text += (text.empty() ? "" : ", ") + dimension.name;
  return text;
}

}  // namespace

struct DeviceMesh::Impl {
  Communicator comm;
  std::vector<MeshDimension> dimensions;
  std::vector<int> coordinates;
  std::vector<Communicator> along;
  std::mutex across_mutex;
  std::map<std::vector<std::size_t>, Communicator> across;  // more than one dimension, fewer than all

  std::size_t checked(std::size_t index) const {
    if (index < dimensions.size()) return index;
    throw InvalidArgument("DeviceMesh " + text_of(dimensions) + ": no dimension " + std::to_string(index) +
                          ", there are " + std::to_string(dimensions.size()));
  }

  /// The ranks that differ in the `varying` dimensions only. Collective over comm.
  Communicator split(const std::vector<std::size_t>& varying) const {
    int color = 0;  // row-major index in the other dimensions
    int key = 0;    // row-major index in these
    for (std::size_t k = 0; k < dimensions.size(); ++k) {
      int& index = std::ranges::find(varying, k) == varying.end() ? color : key;
      index = index * dimensions[k].size + coordinates[k];
    }
    return comm.split(color, key);
  }
};

DeviceMesh::DeviceMesh(const Communicator& comm, std::vector<MeshDimension> dimensions) {
  // Equal on every rank first: then every rank finds the same problem, or none, and all split alike.
  const std::string text = text_of(dimensions);
  comm.require_equal("the dimensions of the DeviceMesh", text.empty() ? "none" : text);
  if (const std::string problem = problem_of(dimensions); !problem.empty())
    throw InvalidArgument("DeviceMesh " + text + ": " + problem);
  const std::int64_t limit = std::int64_t{1} << 31;
  if (const std::int64_t count = rank_count_of(dimensions, limit); count != comm.size()) {
    throw InvalidArgument("DeviceMesh " + text + " is a mesh of " + (count > limit ? "more than " : "") +
                          std::to_string(std::min(count, limit)) + " ranks, but the communicator has " +
                          std::to_string(comm.size()));
  }
  auto impl = std::make_shared<Impl>();
  impl->comm = comm;
  impl->dimensions = std::move(dimensions);
  impl->coordinates.resize(impl->dimensions.size());
  int rest = comm.rank();
  for (std::size_t k = impl->dimensions.size(); k-- > 0;) {
    impl->coordinates[k] = rest % impl->dimensions[k].size;
    rest /= impl->dimensions[k].size;
  }
  for (std::size_t k = 0; k < impl->dimensions.size(); ++k)
    impl->along.push_back(impl->dimensions[k].size == comm.size() ? comm : impl->split({k}));
  impl_ = std::move(impl);
}

DeviceMesh::Impl& DeviceMesh::impl() const {
  if (!impl_) throw InvalidState("DeviceMesh: used while empty");
  return *impl_;
}

const Communicator& DeviceMesh::communicator() const { return impl().comm; }

std::size_t DeviceMesh::rank_count() const { return static_cast<std::size_t>(impl().comm.size()); }

std::size_t DeviceMesh::dimension_count() const { return impl().dimensions.size(); }

const MeshDimension& DeviceMesh::dimension(std::size_t index) const { return impl().dimensions[impl().checked(index)]; }

std::size_t DeviceMesh::index_of(std::string_view name) const {
  const std::vector<MeshDimension>& dimensions = impl().dimensions;
  const auto found = std::ranges::find(dimensions, name, &MeshDimension::name);
  if (found == dimensions.end()) {
    throw InvalidArgument("DeviceMesh " + text_of(dimensions) + ": no dimension is named " + text_of(name) +
                          ", there are " + names_of(dimensions));
  }
  return static_cast<std::size_t>(found - dimensions.begin());
}

int DeviceMesh::coordinate(std::size_t index) const { return impl().coordinates[impl().checked(index)]; }

const Communicator& DeviceMesh::operator[](std::string_view name) const { return impl().along[index_of(name)]; }

const Communicator& DeviceMesh::along(std::size_t index) const { return impl().along[impl().checked(index)]; }

const Communicator& DeviceMesh::across(std::span<const std::size_t> indices) const {
  Impl& mesh = impl();
  std::vector<std::size_t> set(indices.begin(), indices.end());
  std::ranges::sort(set);
  set.erase(std::unique(set.begin(), set.end()), set.end());
  if (!set.empty()) mesh.checked(set.back());
  if (set.size() == mesh.dimensions.size()) return mesh.comm;
  if (set.size() == 1) return mesh.along[set[0]];
  const std::lock_guard lock(mesh.across_mutex);
  auto found = mesh.across.find(set);
  if (found == mesh.across.end()) found = mesh.across.emplace(set, mesh.split(set)).first;
  return found->second;
}

std::vector<MeshDimension> DeviceMesh::parse(std::string_view text) {
  const auto fail = [&](const std::string& what) {
    throw InvalidArgument("mesh '" + std::string(text) + "': " + what +
                          "; expected NAME=SIZE[,NAME=SIZE]..., for example dp=2,tp=4");
  };
  std::vector<MeshDimension> dimensions;
  for (std::string_view rest = text; !text.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) fail("'" + std::string(item) + "' has no '='");
    const std::string_view digits = item.substr(equals + 1);
    int size = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
    if (error != std::errc{} || end != digits.data() + digits.size()) fail("'" + std::string(digits) + "' is no size");
    dimensions.push_back({std::string(item.substr(0, equals)), size});
    if (item.size() == rest.size()) break;
    rest.remove_prefix(item.size() + 1);
  }
  if (const std::string problem = problem_of(dimensions); !problem.empty()) fail(problem);
  return dimensions;
}

std::string DeviceMesh::to_string() const { return text_of(impl().dimensions); }

}  // namespace shardgrad
