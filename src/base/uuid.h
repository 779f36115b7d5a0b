/* base/uuid.h: random names in the form that services want (RFC 9562, version 4). */
#ifndef DROSTE_BASE_UUID_H
#define DROSTE_BASE_UUID_H

enum { UUID_SIZE = 37 };

void uuid_make(char out[UUID_SIZE]);

#endif
