-- Stands in front of the scripts for the owner of a lock.
--
-- nothing answers that an owner does not hold the lock. The client then gives up the hold, so only a
-- master may give this answer. A replica may never have got the lock, or may have lost its master:
--
--   master M grants the lock to a:1    M fails over to N, which has the lock as well
--   the client of a:1 renews           its connection leads to a replica that loads its data, and has
--                                      no lock: it must refuse, and the client asks again
--
-- So nothing first tries a write: the removal of a field that is not there. A master does it, and
-- changes nothing. A server that may not write refuses it, and its refusal is the answer.
local function nothing(key, absent)
    local removed = redis.pcall('hdel', key, absent)
    if type(removed) == 'table' and not string.find(removed.err, 'WRONGTYPE', 1, true) then
        return removed
    end
    return 0
end
-- Extends an owner's lease.
--
-- KEYS[1]  lock
-- ARGV[1]  lease, milliseconds; never shortens the rest of the lease
-- ARGV[2]  owner
--
-- reply    1  renewed
--          0  the owner does not hold the lock, or not alone: databases that merge hashes
--             field by field put two holders side by side
if redis.call('type', KEYS[1]).ok ~= 'hash' or redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
    return nothing(KEYS[1], ARGV[2])
elseif redis.call('hlen', KEYS[1]) ~= 1 then
    return 0
end
-- PEXPIRE always: a replica, or a master without its replicas, must not renew a lease that
-- is longer by merely looking at it.
redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), tonumber(ARGV[1])))
return 1
