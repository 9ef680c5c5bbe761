// Names of the enums that recipes, the command line and Python use.
#include <edgewise/ops/edge_learner.h>
#include <edgewise/ops/sample.h>

#include "ops/enum_names.h"

namespace edgewise {
namespace {
constexpr EnumNames<EdgeLaw, 2> kLaws{"edge law",
                                      {{{"bernoulli", EdgeLaw::kBernoulli}, {"poisson", EdgeLaw::kPoisson}}}};
constexpr EnumNames<Estimator, 3> kEstimators{"estimator",
                                              {{{"paper", Estimator::kPaper},
                                                {"logit", Estimator::kLogit},
                                                {"counterfactual", Estimator::kCounterfactual}}}};
constexpr EnumNames<PresentForm, 2> kForms{
    "present_form", {{{"softmax", PresentForm::kSoftmax}, {"leave_one_out", PresentForm::kLeaveOneOut}}}};
constexpr EnumNames<Sampler, 5> kSamplers{"sampler",
                                          {{{"auto", Sampler::kAuto},
                                            {"direct", Sampler::kDirect},
                                            {"fastrg", Sampler::kFastRg},
                                            {"squeezed", Sampler::kSqueezed},
                                            {"thinning", Sampler::kThinning}}}};
}  // namespace

CreditRule credit_rule(Estimator estimator, PresentForm form) {
  switch (estimator) {
    case Estimator::kPaper:
      return CreditRule::kPaper;
    case Estimator::kLogit:
      return CreditRule::kLogit;
    case Estimator::kCounterfactual:
      return form == PresentForm::kSoftmax ? CreditRule::kLogit : CreditRule::kLeaveOneOut;
  }
  TORCH_INTERNAL_ASSERT(false);
}

EdgeLaw parse_edge_law(std::string_view name) {
  return kLaws.parse(name);
}
Estimator parse_estimator(std::string_view name) {
  return kEstimators.parse(name);
}
PresentForm parse_present_form(std::string_view name) {
  return kForms.parse(name);
}
Sampler parse_sampler(std::string_view name) {
  return kSamplers.parse(name);
}
std::string_view to_string(EdgeLaw law) {
  return kLaws.name(law);
}
std::string_view to_string(Estimator estimator) {
  return kEstimators.name(estimator);
}
std::string_view to_string(PresentForm form) {
  return kForms.name(form);
}
std::string_view to_string(Sampler sampler) {
  return kSamplers.name(sampler);
}

}  // namespace edgewise
