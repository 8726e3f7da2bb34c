// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Hooks by name.
#include <shardgrad/core/error.hpp>
#include <shardgrad/grad/hooks/hooks.hpp>

#include <gtest/gtest.h>

#include <string>

namespace {

namespace sg = shardgrad;

std::string error_of(const std::string& text) {
  try {
    return "no error: " + sg::hooks::parse(text).name();
  } catch (const sg::InvalidArgument& error) {
    return error.what();
  }
}

TEST(ParseHook, understands_every_name_that_a_hook_gives_itself) {
  for (const char* text : {"allreduce",
                           "fp16",
                           "bf16",
                           "noop",
                           "fp16(allreduce)",
                           "bf16(noop)",
                           "bf16(fp16(allreduce))",
                           "bf16:float_second_hop=1",
                           "fp16:float_second_hop=1,chunk_count=1000",
                           "fp16(bf16:chunk_count=7)",
                           "int8",
                           "int4:block=64",
                           "e4m3:stochastic=1,seed=9",
                           "e5m2:block=32,stochastic=1,chunk_count=99",
                           "onebit_codec",
                           "onebit_codec:block=128,mask=0",
                           "bf16(int8)",
                           "ef(int4)",
                           "mixed:type=float32(bf16)",
                           "post_local_sgd:start=7(int8)"}) {
    const auto hook = sg::hooks::parse(text);
    EXPECT_TRUE(hook);
    EXPECT_EQ(hook.name(), text);
    EXPECT_EQ(sg::hooks::parse(hook.name()).name(), text);
  }
  EXPECT_EQ(sg::hooks::fp16_wrapper(sg::hooks::allreduce()).name(), "fp16(allreduce)");
  EXPECT_EQ(sg::hooks::bf16_compress({.float_second_hop = true}).name(), "bf16:float_second_hop=1");
}

TEST(ParseHook, options_that_change_nothing_are_not_in_the_name) {
  EXPECT_EQ(sg::hooks::parse("bf16:float_second_hop=0").name(), "bf16");
  EXPECT_EQ(sg::hooks::parse("bf16:chunk_count=0,float_second_hop=true").name(), "bf16:float_second_hop=1");
}

TEST(ParseHook, says_in_one_line_what_is_wrong) {
  const std::string unknown = error_of("bf17");
  EXPECT_NE(unknown.find("\"bf17\""), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("allreduce, fp16, bf16, noop"), std::string::npos) << unknown;
  EXPECT_NE(error_of("allreduce(noop)").find("\"allreduce(...)\""), std::string::npos);
  EXPECT_NE(error_of("").find("unknown hook \"\""), std::string::npos);
  EXPECT_NE(error_of("bf16(").find("bracket"), std::string::npos);
  EXPECT_NE(error_of("bf16(noop").find("bracket"), std::string::npos);
  EXPECT_NE(error_of("bf16()").find("unknown hook \"\""), std::string::npos);
  EXPECT_NE(error_of("bf16(noop)x").find("bracket"), std::string::npos);
  EXPECT_NE(error_of("fp16(bf17)").find("\"bf17\""), std::string::npos);
  EXPECT_NE(error_of("bf16:rank=4").find("unknown option \"rank\" of \"bf16\"; it has float_second_hop, chunk_count"),
            std::string::npos);
  EXPECT_NE(error_of("noop:x=1").find("it has none"), std::string::npos);
  EXPECT_NE(error_of("bf16:float_second_hop").find("OPTION=VALUE"), std::string::npos);
  EXPECT_NE(error_of("bf16:float_second_hop=maybe").find("\"maybe\""), std::string::npos);
  EXPECT_NE(error_of("bf16:chunk_count=-3").find("\"-3\""), std::string::npos);
  EXPECT_NE(error_of("bf16:chunk_count=1,chunk_count=2").find("twice"), std::string::npos);
  for (const char* text : {"bf17", "bf16(", "bf16:rank=4"}) EXPECT_EQ(error_of(text).find('\n'), std::string::npos);
}

TEST(Wrapper, needs_an_inner_hook) {
  EXPECT_THROW(sg::hooks::fp16_wrapper({}), sg::InvalidArgument);
  EXPECT_THROW(sg::hooks::bf16_wrapper({}), sg::InvalidArgument);
}

}  // namespace
