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
