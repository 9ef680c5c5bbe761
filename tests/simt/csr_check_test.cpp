// The check of a CSR on the device, lane by lane on a CPU, against the host's.
#include <edgewise/graph/edge_set.h>

#include <functional>

#include "graph/checks.h"
#include "kernels/cuda/lists/csr_params.h"
#include "kit/random_inputs.h"
#include "simt_kit.h"

namespace edgewise {
namespace {

struct Found {
  kernels::cuda::CsrReport report{};
  at::Tensor offsets, columns, place, reported;
};

// Into what is there: the mailbox of `found` stays as it is.
void check_into(Found& found, const EdgeShape& shape, const at::Tensor& offsets, const at::Tensor& columns) {
  found.offsets = at::full_like(offsets, -7);
  found.columns = at::full_like(columns, -7);
  found.place = at::zeros({1}, at::kLong);
  kernels::cuda::CsrCheckParams p;
  p.rows = shape.rows(), p.edges = columns.size(0), p.keys = shape.keys;
  p.row_offsets = offsets.const_data_ptr<int64_t>();
  p.columns = columns.const_data_ptr<int32_t>();
  p.fault_place = reinterpret_cast<uint64_t*>(found.place.mutable_data_ptr<int64_t>());
  p.safe_offsets = found.offsets.mutable_data_ptr<int64_t>();
  p.safe_columns = found.columns.mutable_data_ptr<int32_t>();
  p.function = "f";
  p.reported = reinterpret_cast<uint32_t*>(found.reported.mutable_data_ptr<int32_t>());
  p.report = &found.report;
  EXPECT_EQ(kernels::cuda::launch_csr_check(p, nullptr), 0);
}
Found check(const EdgeShape& shape, const at::Tensor& offsets, const at::Tensor& columns) {
  Found found;
  found.reported = at::zeros({1}, at::kInt);
  check_into(found, shape, offsets, columns);
  return found;
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

struct Csr {
  EdgeShape shape{2, 3, 40, 50};
  at::Tensor offsets, columns;
  Csr() {
    const EdgeSet edges =
        EdgeSet::from_mask(at::rand({2, 3, 40, 50}, at::detail::createCPUGenerator(5)).lt(0.3));
    offsets = edges.row_offsets().clone(), columns = edges.col_indices().clone();
  }
  int64_t& offset(int64_t n) { return offsets.mutable_data_ptr<int64_t>()[n]; }
  int32_t& column(int64_t n) { return columns.mutable_data_ptr<int32_t>()[n]; }
};

TEST(CsrCheck, WhatIsRightGoesOnAsItIs) {
  Csr csr;
  const Found found = check(csr.shape, csr.offsets, csr.columns);
  EXPECT_EQ(found.place.item<int64_t>(), 0);
  EXPECT_EQ(found.report.fault.kind, kernels::CsrFaultKind::kNone);
  EXPECT_TRUE(at::equal(found.offsets, csr.offsets));
  EXPECT_TRUE(at::equal(found.columns, csr.columns));
}

TEST(CsrCheck, NamesTheFaultThatTheHostNamesAndGoesOnWithoutIt) {
  const std::vector<std::function<void(Csr&)>> faults = {
      [](Csr& c) { c.offset(0) = 1; },
      [](Csr& c) { c.offset(0) = -3; },
      [](Csr& c) { c.offset(240) += 5; },
      [](Csr& c) { c.offset(240) -= 1; },
      [](Csr& c) { c.offset(100) = c.offset(101) + 1; },
      [](Csr& c) { c.offset(100) = int64_t{1} << 60; },
      [](Csr& c) { c.offset(100) = -(int64_t{1} << 60); },
      [](Csr& c) { c.column(c.offset(17)) = 50; },
      [](Csr& c) { c.column(c.offset(17)) = -1; },
      [](Csr& c) { c.column(c.offset(18) - 1) = 1 << 30; },
      [](Csr& c) { c.column(c.offset(200) + 1) = c.column(c.offset(200)); },
      [](Csr& c) { std::swap(c.column(c.offset(3)), c.column(c.offset(3) + 1)); },
      // The first of many.
      [](Csr& c) { c.column(c.offset(90)) = 50, c.column(c.offset(20)) = -4, c.column(c.offset(21)) = 77; },
      [](Csr& c) {
        c.column(c.offset(9)) = 50, c.offset(150) = c.offset(151) + 1, c.offset(60) = c.offset(61) + 1;
      },
      [](Csr& c) { c.offset(0) = 2, c.column(5) = -1, c.offset(240) += 1; },
  };
  for (size_t n = 0; n < faults.size(); ++n) {
    Csr csr;
    faults[n](csr);
    const std::string expected =
        message_of([&] { graph::check_csr("f", csr.shape, csr.offsets, csr.columns); });
    ASSERT_NE(expected, "") << n;
    const Found found = check(csr.shape, csr.offsets, csr.columns);
    EXPECT_NE(found.place.item<int64_t>(), 0) << n;
    EXPECT_STREQ(found.report.function, "f") << n;
    EXPECT_EQ(message_of([&] { graph::raise_fault("f", found.report.fault, ""); }), expected) << n;
    EXPECT_EQ(message_of([&] { graph::check_csr("safe", csr.shape, found.offsets, found.columns); }), "")
        << n;
  }
}

TEST(CsrCheck, OneReportUntilItIsRead) {
  Csr csr;
  csr.offset(0) = 1;
  Found found = check(csr.shape, csr.offsets, csr.columns);
  EXPECT_EQ(found.reported.item<int32_t>(), 1);
  // The next fault finds the mailbox taken.
  csr.offset(0) = 0, csr.column(0) = -1;
  check_into(found, csr.shape, csr.offsets, csr.columns);
  EXPECT_EQ(found.report.fault.kind, kernels::CsrFaultKind::kFirstOffset);
  EXPECT_NE(found.place.item<int64_t>(), 0);
  // Once the host has read it there is room again.
  found.report.fault.kind = kernels::CsrFaultKind::kNone;
  ++found.report.acknowledged;
  check_into(found, csr.shape, csr.offsets, csr.columns);
  EXPECT_EQ(found.report.fault.kind, kernels::CsrFaultKind::kColumn);
  EXPECT_EQ(found.reported.item<int32_t>(), 2);
}

TEST(CsrCheck, NothingAtAll) {
  for (const EdgeShape& shape : {EdgeShape{0, 1, 4, 4}, EdgeShape{1, 1, 0, 4}, EdgeShape{1, 1, 3, 0}}) {
    const at::Tensor offsets = at::zeros({shape.rows() + 1}, at::kLong), none = at::empty({0}, at::kInt);
    const Found found = check(shape, offsets, none);
    EXPECT_EQ(found.place.item<int64_t>(), 0);
    EXPECT_TRUE(at::equal(found.offsets, offsets));
  }
}

TEST(CsrCheck, SpoilsWhatHadAFault) {
  at::Tensor place = at::zeros({1}, at::kLong);
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat, at::kDouble}) {
    const at::Tensor results = at::ones({3, 301}, type);
    const auto spoil = [&] {
      return kernels::cuda::launch_spoil(reinterpret_cast<const uint64_t*>(place.const_data_ptr<int64_t>()),
                                         results.mutable_data_ptr(), static_cast<int64_t>(results.nbytes()),
                                         nullptr);
    };
    place.zero_();
    EXPECT_EQ(spoil(), 0);
    EXPECT_TRUE(results.eq(1).all().item<bool>());
    place.fill_(-1);
    EXPECT_EQ(spoil(), 0);
    EXPECT_TRUE(results.isnan().all().item<bool>());
  }
}

}  // namespace
}  // namespace edgewise
