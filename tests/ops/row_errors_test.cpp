// The measure of the GPU's tests notices one wrong row among thousands, which the norm of the whole does not.
#include "kit/row_errors.h"

#include <cmath>

#include "kit/random_inputs.h"

namespace edgewise::kit {
namespace {

TEST(RowErrors, NoticeOneWrongRow) {
  const at::Tensor expected = randn({2, 3, 4000, 32}, 1), noise = randn({2, 3, 4000, 32}, 2) * 1e-3;
  at::Tensor found = expected + noise;
  EXPECT_TRUE(rows_agree(found, expected, 2e-3));
  found[1][2][17] = expected[1][2][18];
  EXPECT_LT(row_errors(found, expected).whole, 1.5e-2);
  EXPECT_FALSE(rows_agree(found, expected, 1.5e-2));
  EXPECT_EQ(row_errors(found, expected).worst_row, 5 * 4000 + 17);
}

TEST(RowErrors, MeasureSmallRowsAgainstATypicalOne) {
  at::Tensor expected = randn({100, 8}, 1);
  expected[3].zero_();
  at::Tensor found = expected.clone();
  found[3].fill_(1e-3);
  EXPECT_LT(row_errors(found, expected).worst, 2e-3);
  EXPECT_GT(row_errors(found, expected).worst, 5e-4);
}

TEST(RowErrors, NeverAcceptWhatIsNoNumber) {
  const at::Tensor expected = randn({100, 8}, 1);
  at::Tensor found = expected.clone();
  found[40][2] = NAN;
  EXPECT_FALSE(rows_agree(found, expected, 1e9));
  EXPECT_EQ(row_errors(found, expected).worst_row, 40);
  EXPECT_TRUE(rows_agree(expected.narrow(0, 0, 0), expected.narrow(0, 0, 0), 0));
}

}  // namespace
}  // namespace edgewise::kit
