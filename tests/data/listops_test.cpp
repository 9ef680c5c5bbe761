// ListOps evaluation on small fixed trees, and what it says about malformed ones.
#include <edgewise/data/listops.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/listops_tokens.h"

namespace edgewise::data {
namespace {

int64_t value(const std::string& names) {
  return evaluate_listops(listops(names)).value;
}

TEST(ListOps, EvaluatesEveryOperator) {
  EXPECT_EQ(value("7"), 7);
  EXPECT_EQ(value("[MIN 4 2 9 X"), 2);
  EXPECT_EQ(value("[MAX 4 2 9 X"), 9);
  EXPECT_EQ(value("[MED 4 2 9 X"), 4);
  EXPECT_EQ(value("[SM 4 2 9 X"), 5);
  EXPECT_EQ(value("[SM 5 5 X"), 0);
}

TEST(ListOps, AnEvenMedianIsTruncated) {
  EXPECT_EQ(value("[MED 1 4 X"), 2);      // 2.5
  EXPECT_EQ(value("[MED 9 0 3 4 X"), 3);  // 3.5
  EXPECT_EQ(value("[MED 2 4 4 6 X"), 4);
  EXPECT_EQ(value("[MED 8 9 X"), 8);  // 8.5
}

TEST(ListOps, EvaluatesNestedTrees) {
  // The example of the ListOps paper.
  EXPECT_EQ(value("[MAX 2 9 [MIN 4 7 X 0 X"), 9);
  EXPECT_EQ(value("[SM [MED 1 [MAX 3 8 X 2 X [MIN 9 6 X 5 X"), 3);  // 2 + 6 + 5
}

TEST(ListOps, SaysWhatIsWrongAndWhere) {
  const auto problem = [](const std::string& names) {
    const ListOpsValue result = evaluate_listops(listops(names));
    return std::to_string(result.position) + ": " + result.problem;
  };
  EXPECT_EQ(problem(""), "0: the expression is empty");
  EXPECT_EQ(problem("X"), "0: a closing token without an operator");
  EXPECT_EQ(problem("[MIN X"), "1: an operator without arguments");
  EXPECT_EQ(problem("[MIN 1 [MAX 2 X"), "5: 1 operators are never closed");
  EXPECT_EQ(problem("[MIN 1 2 X 3"), "4: the expression is complete but more tokens follow");
  EXPECT_EQ(problem("1 2"), "1: the expression is complete but more tokens follow");
  const std::vector<uint8_t> padded = {kListOpsMin, 0, kListOpsEnd};
  EXPECT_EQ(evaluate_listops(padded).problem, "token id 0 is not a ListOps token");
}

TEST(ListOps, IdsAreFixed) {
  EXPECT_EQ(listops("[MIN [MAX [MED [SM X 0 9"), (std::vector<uint8_t>{1, 2, 3, 4, 5, 6, 15}));
}

}  // namespace
}  // namespace edgewise::data
