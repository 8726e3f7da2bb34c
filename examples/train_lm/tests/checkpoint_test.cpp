// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Checkpoint files: whole or refused.
#include "checkpoint.hpp"

#include "scratch_folder.hpp"
#include "usage_error.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace train_lm {
namespace {

Checkpoint sample() {
  Checkpoint checkpoint;
  checkpoint.settings = {{"--batch", "64"}, {"text", "0123"}};
  checkpoint.step = 12;
  checkpoint.curve = {{11, 0.1, 1.0 / 3.0, std::nullopt}, {12, 0.05, 2.5, 2.0 / 3.0}};
  checkpoint.tensors["a"] = {1.0f, -0.0f, std::numeric_limits<float>::denorm_min(),
                             std::numeric_limits<float>::infinity()};
  checkpoint.tensors["b"] = {};
  return checkpoint;
}

std::string problem_with(const std::string& file) {
  try {
    read_checkpoint(file);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "none";
}

TEST(Checkpoint, what_was_written_is_read_bit_for_bit) {
  const ScratchFolder folder;
  write_checkpoint(folder.path("file"), sample());
  const Checkpoint read = read_checkpoint(folder.path("file"));
  EXPECT_EQ(read.settings, sample().settings);
  EXPECT_EQ(read.step, 12);
  ASSERT_EQ(read.curve.size(), 2u);
  EXPECT_EQ(read.curve[0].training_loss, 1.0 / 3.0);
  EXPECT_FALSE(read.curve[0].validation_loss.has_value());
  EXPECT_EQ(read.curve[1].validation_loss, 2.0 / 3.0);
  EXPECT_EQ(read.tensors, sample().tensors);
  EXPECT_TRUE(std::signbit(read.tensors.at("a")[1]));
}

TEST(Checkpoint, equal_states_make_equal_files_and_nothing_is_left_beside) {
  const ScratchFolder folder;
  write_checkpoint(folder.path("one"), sample());
  write_checkpoint(folder.path("two"), sample());
  EXPECT_EQ(folder.read("one"), folder.read("two"));
  EXPECT_FALSE(std::filesystem::exists(folder.path("one.partial")));
}

TEST(Checkpoint, a_file_cut_short_anywhere_is_refused) {
  const ScratchFolder folder;
  write_checkpoint(folder.path("file"), sample());
  const std::string whole = folder.read("file");
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(problem_with(folder.write("cut", whole.substr(0, size))), "none")
        << size << " of " << whole.size() << " bytes";
  EXPECT_NE(problem_with(folder.write("long", whole + "x")), "none");
}

TEST(Checkpoint, a_file_with_any_bit_changed_is_refused) {
  const ScratchFolder folder;
  write_checkpoint(folder.path("file"), sample());
  const std::string whole = folder.read("file");
  for (std::size_t place = 0; place < whole.size(); ++place) {
    std::string damaged = whole;
    damaged[place] = static_cast<char>(damaged[place] ^ 0x40);
    EXPECT_NE(problem_with(folder.write("damaged", damaged)), "none") << "byte " << place;
  }
}

TEST(Checkpoint, refusals_say_what_is_wrong) {
  const ScratchFolder folder;
  const std::string missing = folder.path("missing"), other = folder.write("other", std::string(1000, 'x'));
  EXPECT_EQ(problem_with(missing), "cannot read checkpoint '" + missing + "': No such file or directory");
  EXPECT_EQ(problem_with(other), "'" + other + "' is no checkpoint of train_lm");
  EXPECT_THROW(write_checkpoint(folder.path("no/such/folder"), sample()), UsageError);
}

TEST(Checkpoint, other_settings_are_refused_by_name) {
  const Checkpoint checkpoint = sample();
  EXPECT_NO_THROW(require_same_settings("file", checkpoint, {{"--batch", "64"}}));
  try {
    require_same_settings("file", checkpoint, {{"--batch", "32"}});
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "checkpoint 'file' was made with --batch 64, not 32");
  }
  EXPECT_THROW(require_same_settings("file", checkpoint, {{"--new", "1"}}), UsageError);
}

}  // namespace
}  // namespace train_lm
