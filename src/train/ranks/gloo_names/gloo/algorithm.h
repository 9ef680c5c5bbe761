// What torch's header of the Gloo backend includes; it uses nothing of it. See gloo/context.h.
#pragma once
