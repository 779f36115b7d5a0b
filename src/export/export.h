/* export/export.h: runs as lines of JSON. */
#ifndef DROSTE_EXPORT_EXPORT_H
#define DROSTE_EXPORT_EXPORT_H

#include "droste.h"

/* The version of the lines, their `schema`: docs/record.md says what changes it. */
enum { EXPORT_SCHEMA = 1 };

/* A visitor that writes each step as a line to its argument, a struct steps_out. */
extern const droste_record_visitor export_visitor;

#endif
