/* api/packages_build.h: builds package sets. */
#pragma once

#include "base/error.h"

struct package_job;
struct package_set;

/* Builds a set in a sandbox of its own, and waits for that. */
int api_packages_build(const struct package_job *job, struct package_set **out, struct error *err);
