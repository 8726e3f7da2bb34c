// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Communicator: a transport with counters, on a lane.
#include "communicator_impl.hpp"

#include "check.hpp"
#include "local/local_transport.hpp"
#include "resolve_options.hpp"

#include <utility>

namespace shardgrad {

namespace {

bool needs_thread(const Transport& transport, const CommunicatorOptions& options) {
  switch (*options.progress) {
    case Progress::inline_:
      return false;
    // One rank waits for nobody: a change of thread would only cost.
    case Progress::automatic:
      return transport.supports_progress_thread() && transport.size() > 1;
    case Progress::thread:
      break;
  }
  if (!transport.supports_progress_thread())
    throw InvalidArgument("CommunicatorOptions::progress asks for a progress thread, but the transport '" +
                          transport.name() +
                          "' may be called from one thread only (MPI: call MPI_Init_thread with MPI_THREAD_MULTIPLE)");
  return true;
}

std::shared_ptr<detail::Lane> make_lane(std::unique_ptr<Transport> transport, const CommunicatorOptions& options) {
  const bool threaded = needs_thread(*transport, options);
  return std::make_shared<detail::Lane>(std::make_unique<detail::CountingTransport>(std::move(transport)), threaded,
                                        *options.timeout);
}

}  // namespace

Communicator::Impl::Impl(std::unique_ptr<Transport> transport, CommunicatorOptions resolved)
    : options(std::move(resolved)), lane(make_lane(std::move(transport), options)) {}

Communicator::Communicator(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Communicator::Impl& Communicator::impl() const {
  if (!impl_) throw InvalidState("Communicator: used while empty");
  return *impl_;
}

Communicator detail::CommunicatorAccess::make_local(std::unique_ptr<Transport> transport,
                                                    const CommunicatorOptions& resolved) {
  return Communicator(std::make_shared<Communicator::Impl>(std::move(transport), resolved));
}

Communicator detail::CommunicatorAccess::make(const CommunicatorOptions& asked, const MakeTransport& make_transport) {
  ErrorCode code = ErrorCode::none;
  std::string text;
  CommunicatorOptions options;
  try {
    options = resolve_options(asked);
  } catch (const Error& error) {
    code = error.code();
    text = error.what();
    // Something to tell the others with.
    options = {Route::automatic, Progress::inline_, std::chrono::seconds(600), std::size_t{1} << 30, true};
  }
  std::unique_ptr<Transport> transport = make_transport(options);
  try {
    if (code == ErrorCode::none) needs_thread(*transport, options);
  } catch (const Error& error) {
    code = error.code();
    text = error.what();
  }
  agree(*transport, code, text);
  require_equal_options(*transport, common_options(options));
  return make_local(std::move(transport), options);
}

Communicator Communicator::self(const CommunicatorOptions& options) {
  // A local group of one.
  const CommunicatorOptions resolved = detail::resolve_options(options);
  auto transports = detail::make_local_transports(1, *resolved.timeout, "self");
  return detail::CommunicatorAccess::make_local(std::move(transports.front()), resolved);
}

Communicator Communicator::from_transport(std::unique_ptr<Transport> transport, const CommunicatorOptions& options) {
  if (!transport) throw InvalidArgument("Communicator::from_transport: the transport is null");
  return detail::CommunicatorAccess::make(options, [&](const CommunicatorOptions&) { return std::move(transport); });
}

std::vector<Communicator> Communicator::local_group(int size, const CommunicatorOptions& options) {
  if (size < 1)
    throw InvalidArgument("Communicator::local_group: the size is " + std::to_string(size) + "; at least 1 is needed");
  const CommunicatorOptions resolved = detail::resolve_options(options);
  std::vector<Communicator> group;
  for (auto& transport : detail::make_local_transports(size, *resolved.timeout))
    group.push_back(detail::CommunicatorAccess::make_local(std::move(transport), resolved));
  return group;
}

int Communicator::rank() const { return impl().lane->transport().rank(); }
int Communicator::size() const { return impl().lane->transport().size(); }
std::string Communicator::transport_name() const { return impl().lane->transport().inner().name(); }
bool Communicator::has_progress_thread() const { return impl().lane->threaded(); }
Counters Communicator::counters() const { return impl().lane->transport().counters(); }
void Communicator::reset_counters() const { impl().lane->transport().reset_counters(); }
const CommunicatorOptions& Communicator::options() const { return impl().options; }
void Communicator::abort(const std::string& reason) const { impl().lane->abort(reason); }

Work Communicator::enqueue(std::string label, std::function<void(Transport&)> operation) const {
  return impl().lane->enqueue(std::move(label), std::move(operation));
}

void Communicator::run(const std::string& label, const std::function<void(Transport&)>& operation) const {
  impl().lane->run(label, operation);
}

Communicator Communicator::split(int color, int key) const {
  std::unique_ptr<Transport> part;
  run("shardgrad::Communicator::split", [&](Transport& transport) { part = transport.split(color, key); });
  return part ? detail::CommunicatorAccess::make_local(std::move(part), options()) : Communicator();
}

void Communicator::agree(ErrorCode code, const std::string& text) const {
  run("shardgrad::Communicator::agree", [&](Transport& transport) { detail::agree(transport, code, text); });
}

void Communicator::require_equal(const std::string& what, const std::string& value) const {
  run("shardgrad::Communicator::require_equal",
      [&](Transport& transport) { detail::require_equal(transport, what, value); });
}

}  // namespace shardgrad
