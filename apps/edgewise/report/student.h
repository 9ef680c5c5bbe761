// Student's t distribution, for differences over a few seeds.
#pragma once

namespace edgewise::app {

// Two-sided probability of |t| or more: I_x(degrees / 2, 1 / 2) at x = degrees / (degrees + t^2), with I the
// regularised incomplete beta function.
double student_p(double t, double degrees);

}  // namespace edgewise::app
