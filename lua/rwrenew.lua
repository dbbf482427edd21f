-- Extends the lease of an owner of a read/write lock.
--
-- KEYS[1]  lock
-- KEYS[2]  the owner's first read hold, for servers that want the key declared; not while the
--          slot of a cluster moves: the script may have one key only then
-- ARGV[1]  lease, milliseconds; never shortens the rest of the lease
-- ARGV[2]  owner
-- ARGV[3]  beginning of the keys of read holds
--
-- reply    1  renewed
--          0  the owner does not hold the lock
local _, shared, exclusive = look(KEYS[1], ARGV[2])
if shared + exclusive == 0 then
    return nothing(KEYS[1], ARGV[2] .. ':write')
end
extend(KEYS[1], ARGV[3], ARGV[2], shared, shared, tonumber(ARGV[1]))
return 1
