/* base/uuid.c: see uuid.h. */
#include "base/uuid.h"

#include <string.h>
#include <sys/random.h>

#include "base/text.h"

void uuid_make(char out[UUID_SIZE])
{
    static const int groups[] = { 4, 2, 2, 2, 6 };
    unsigned char raw[16] = { 0 };
    const unsigned char *from = raw;
    (void)!getrandom(raw, sizeof raw, 0); /* so few bytes always come, once there are any */
    raw[6] = (unsigned char)((raw[6] & 0x0F) | 0x40);
    raw[8] = (unsigned char)((raw[8] & 0x3F) | 0x80);
    for (int i = 0; i < 5; i++) {
        text_hex(from, (size_t)groups[i], out);
        from += groups[i];
        out += 2 * groups[i];
        *out++ = i < 4 ? '-' : '\0';
    }
}
