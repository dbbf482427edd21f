-- Tells the rest of an owner's lease, and changes nothing.
--
-- KEYS[1]  lock
-- ARGV[1]  not used: the lease of a renewal, as this script travels among renewals
-- ARGV[2]  owner
--
-- reply    {1, pttl}  the owner holds the lock; -1 without TTL
--          0  the owner does not hold the lock (nor does a key of another type)
if redis.call('type', KEYS[1]).ok ~= 'hash' or redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
    return nothing(KEYS[1], ARGV[2])
end
-- There is no such field. A replica, whose answer may be old, refuses to look for it, and
-- so does a server that would refuse a renewal.
redis.call('hdel', KEYS[1], '')
return {1, redis.call('pttl', KEYS[1])}
