// Where the time of a process goes: torch reports the beginning and end of every operation, and the trainer
// of every phase of a run (data, forward, backward, optimizer, ...).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace edgewise::train {

struct ProfileLine {
  std::string name;
  int64_t calls = 0;
  double seconds = 0;
};

// Listens from its construction to its destruction, on all threads. One at a time.
class Profile {
 public:
  Profile();
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  // Phases with all that happened inside them; a phase inside another one counts in both.
  std::vector<ProfileLine> phases() const;
  // Operations without what they called. Longest first, as above.
  std::vector<ProfileLine> operations() const;
  double seconds() const;  // since the construction
  // In all phases together, one inside another counted once: what is missing from seconds() lies between
  // them.
  double phase_seconds() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace edgewise::train
