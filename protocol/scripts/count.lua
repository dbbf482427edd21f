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
-- Sets the hold count of an owner. The count is absolute, never a step: a
-- repeated or late delivery cannot count twice.
--
-- KEYS[1]  lock
-- ARGV[1]  lease, milliseconds; never shortens the rest of the lease
-- ARGV[2]  owner
-- ARGV[3]  hold count
--
-- reply    1  done
--          0  the owner does not hold the lock (nor does a key of another type)
if redis.call('type', KEYS[1]).ok ~= 'hash' or redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
    return nothing(KEYS[1], ARGV[2])
end
-- PEXPIRE first and always: a server out of memory refuses HSET as a script's
-- first write but not as its second.
redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), tonumber(ARGV[1])))
redis.call('hset', KEYS[1], ARGV[2], ARGV[3])
return 1
