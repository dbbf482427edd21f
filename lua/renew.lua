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
