// What is said of a call is what the call does.
#include <edgewise/ops/cpu_level.h>
#include <edgewise/ops/explain.h>
#include <edgewise/ops/functional.h>

#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kit/random_inputs.h"

namespace edgewise {
namespace {

using testing::HasSubstr;

struct Call {
  at::Tensor query, key, value;
  EdgeSet edges;

  Call(int64_t n, int64_t dim, double density, at::ScalarType dtype)
      : query(kit::randn({1, 2, n, dim}, 1, at::kBFloat16).to(dtype)),
        key(kit::randn({1, 2, n, dim}, 2, at::kBFloat16).to(dtype)),
        value(kit::randn({1, 2, n, dim}, 3, at::kBFloat16).to(dtype)),
        edges(EdgeSet::from_mask(kit::random_mask({1, 2, n, n}, density, 4))) {}

  AttentionChoice choice() const { return explain_attention(query, key, value, edges); }
  at::Tensor output() const { return functional::edge_attention(query, key, value, edges); }
};

struct WideningCase {
  int64_t n, dim;
  double density;
  bool widened;
  const char* words;
};

TEST(ExplainAttention, SaysWhenBf16IsWidenedOncePerCall) {
  for (const WideningCase& c :
       {WideningCase{256, 32, 0.5, true, "widened to fp32 once per call: a key is read 12"},
        WideningCase{256, 32, 0.97, true, "a head's keys and values take 64 KiB in fp32"},
        WideningCase{256, 32, 0.1, false, "times (from 64 on)"},
        WideningCase{1100, 128, 0.2, false, "take 1100 KiB in fp32 (up to 1024 KiB)"}}) {
    SCOPED_TRACE(c.words);
    const Call narrow(c.n, c.dim, c.density, at::kBFloat16), wide(c.n, c.dim, c.density, at::kFloat);
    const AttentionChoice choice = narrow.choice();
    EXPECT_EQ(choice.widened, c.widened);
    EXPECT_THAT(choice.bf16_rows, HasSubstr(c.words));
    // A widened call is the fp32 call with its output rounded, in blocks where that one is.
    // (Levels without products of bf16 give the same bits either way.)
    EXPECT_TRUE(!c.widened || at::equal(narrow.output(), wide.output().to(at::kBFloat16)));
    EXPECT_EQ(choice.implementation, c.widened ? wide.choice().implementation : "gather");
    EXPECT_EQ(wide.choice().bf16_rows, "");
    EXPECT_FALSE(wide.choice().widened);
    EXPECT_FALSE(choice.is_calibrated) << "dense attention in bf16 has a cost of its own";
  }
}

// The measured medians of two CPUs, n = 2048 (docs/performance.md).
TEST(ExplainAttention, PredictsWhatWasMeasured) {
  struct Measured {
    int64_t dim;
    double density, least, most;  // dense attention's time over ours, forward
  };
  for (const Measured& c :
       {Measured{32, 0.25, 2.0, 2.3}, Measured{32, 0.1, 4.4, 5.3}, Measured{32, 0.01, 20, 26},
        Measured{64, 0.25, 1.8, 2.5}, Measured{64, 0.1, 3.9, 5.0}, Measured{64, 0.01, 18, 26}}) {
    const AttentionChoice choice = Call(2048, c.dim, c.density, at::kFloat).choice();
    const double speedup = choice.dense_ms / choice.gather_ms;
    EXPECT_GE(speedup, c.least) << c.dim << " " << c.density;
    EXPECT_LE(speedup, c.most) << c.dim << " " << c.density;
  }
}

TEST(ExplainAttention, NamesTheLevelThatRunsAndWhyItGathers) {
  const AttentionChoice wide = Call(256, 32, 0.97, at::kFloat).choice(),
                        few = Call(256, 32, 0.1, at::kFloat).choice(),
                        portable = Call(256, 32, 0.97, at::kDouble).choice();
  EXPECT_EQ(wide.cpu_level, cpu_level());
  EXPECT_THAT(wide.reason, HasSubstr("blocks of all pairs are predicted to be cheaper"));
  EXPECT_THAT(few.reason, HasSubstr("gathering them is predicted to be cheaper"));
  EXPECT_EQ(portable.implementation, "gather");
  EXPECT_EQ(portable.cpu_level, "scalar");  // the only one of fp64
  EXPECT_THAT(portable.reason, HasSubstr("float32 alone"));
  EXPECT_FALSE(portable.is_calibrated);
}

}  // namespace
}  // namespace edgewise
