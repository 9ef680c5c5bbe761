// What is said of a call is what the call does.
#include <edgewise/ops/cpu_level.h>
#include <edgewise/ops/explain.h>
#include <edgewise/ops/functional.h>

#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kit/random_inputs.h"
#include "ops/attention/kernel_table.h"

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
    // A widened call is the fp32 call with its output rounded.
    // (Levels without products of bf16 give the same bits either way.)
    EXPECT_TRUE(!c.widened || at::equal(narrow.output(), wide.output().to(at::kBFloat16)));
    EXPECT_EQ(choice.implementation, "cpu gather");
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

TEST(ExplainAttention, NamesTheKernelThatRunsAndWhyTheOthersDoNot) {
  const AttentionChoice some = Call(256, 32, 0.1, at::kFloat).choice(),
                        all = Call(256, 32, 1, at::kFloat).choice(),
                        wide = Call(256, 32, 1, at::kDouble).choice();
  const auto refusal = [](const AttentionChoice& choice, const char* kernel) {
    const auto found = std::ranges::find(choice.kernels, kernel, &KernelAnswer::kernel);
    EXPECT_NE(found, choice.kernels.end()) << kernel;
    return found->refusal;
  };
  EXPECT_EQ(some.implementation, "cpu gather");
  EXPECT_EQ(refusal(some, "cpu gather"), "");
  EXPECT_EQ(refusal(some, "cpu dense"), "some pairs are no edges");
  EXPECT_EQ(refusal(some, "cuda tiles"), "the tensors are not on a GPU");
  EXPECT_EQ(all.implementation, "cpu dense");
  EXPECT_EQ(refusal(wide, "cpu dense"), "only float32");
  EXPECT_EQ(some.cpu_level, cpu_level());
  EXPECT_EQ(wide.cpu_level, "scalar");  // the only one of fp64
  EXPECT_FALSE(wide.is_calibrated);
}

// ---- which CUDA kernel takes a call, as any machine can tell ----

ops::AttentionCall on_gpu(at::ScalarType dtype, int64_t dim, double density) {
  ops::AttentionCall call;
  call.device = at::kCUDA;
  call.device_bytes = int64_t{139} << 30;
  call.shape = {2, 4, 1024, 1024};
  call.dtype = dtype;
  call.head_dim = call.value_dim = dim;
  call.is_listed = true;
  call.edge_count = static_cast<int64_t>(density * static_cast<double>(call.shape.pairs()));
  call.matmul = Float32Matmul::kTf32x3;
  return call;
}
std::string kernel_of(const ops::AttentionCall& call) {
  return ops::choose_kernel(call).name;
}

TEST(KernelTable, ChoosesByShapeTypeAndDensityOnAGpu) {
  EXPECT_EQ(kernel_of(on_gpu(at::kBFloat16, 32, 0.01)), "cuda gather");
  EXPECT_EQ(kernel_of(on_gpu(at::kBFloat16, 32, 0.025)), "cuda windows and tiles");
  EXPECT_EQ(kernel_of(on_gpu(at::kBFloat16, 32, 0.1)), "cuda tiles");
  EXPECT_EQ(kernel_of(on_gpu(at::kBFloat16, 128, 0.025)), "cuda tiles");
  EXPECT_EQ(kernel_of(on_gpu(at::kFloat, 32, 0.005)), "cuda gather");
  EXPECT_EQ(kernel_of(on_gpu(at::kFloat, 32, 0.5)), "cuda float tiles");
  EXPECT_EQ(kernel_of(on_gpu(at::kDouble, 32, 0.5)), "reference, masked matrices");
  EXPECT_EQ(kernel_of(on_gpu(at::kBFloat16, 80, 0.001)), "reference, edge list");
  ops::AttentionCall tiles = on_gpu(at::kBFloat16, 32, 0.01);
  tiles.is_listed = false, tiles.edge_count.reset();
  EXPECT_EQ(kernel_of(tiles), "cuda windows and tiles");
  ops::AttentionCall many = on_gpu(at::kBFloat16, 32, 0.1);
  many.shape.batch = 65536;
  EXPECT_EQ(kernel_of(many), "cuda gather") << "more heads than a launch over tiles has";
  ops::AttentionCall foreign = on_gpu(at::kBFloat16, 32, 0.1);
  foreign.no_kernels = "another GPU";
  EXPECT_EQ(kernel_of(foreign), "reference, masked matrices");
}

TEST(KernelTable, GivesALearnerWhatItAsksFor) {
  ops::AttentionCall call = on_gpu(at::kBFloat16, 32, 0.1);
  call.gradients_follow = true;
  call.learns.rule = kernels::CreditRule::kLogit;
  EXPECT_EQ(kernel_of(call), "cuda gather") << "numbers per edge, at any density";
  call.learns.clusters = 32;
  EXPECT_EQ(kernel_of(call), "cuda tiles") << "which form the gradients of the memberships";
  call.learns.rule = kernels::CreditRule::kLeaveOneOut;
  EXPECT_EQ(kernel_of(call), "cuda gather");
  call.learns.rule = kernels::CreditRule::kPaper;
  call.learns.clusters = 200;
  EXPECT_EQ(kernel_of(call), "cuda gather");
  call.learns.clusters = 32;
  call.learns.has_fixed = true;
  call.edge_count = 1000;
  EXPECT_EQ(kernel_of(call), "cuda windows and tiles") << "fixed edges, however few";
}

TEST(KernelTable, SaysEveryRefusalWhenThereIsNoKernel) {
  ops::AttentionCall call = on_gpu(at::kBFloat16, 80, 0.1);
  call.backend = functional::Backend::kKernel;
  EXPECT_THAT([&] { ops::choose_kernel(call); },
              testing::ThrowsMessage<c10::ValueError>(
                  testing::AllOf(HasSubstr("cuda tiles: head dim 80 with 0 clusters is not built"),
                                 HasSubstr("cpu gather: the tensors are not on the CPU"),
                                 HasSubstr("reference, edge list: our kernels were asked for"))));
}

}  // namespace
}  // namespace edgewise
