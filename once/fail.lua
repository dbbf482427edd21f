-- Removes the trace of a run, so that another may begin. The trace of another run, and a result, stay.
--
-- KEYS[1]  companion
-- KEYS[2]  lock
-- ARGV[1]  owner of the run
-- ARGV[2]  1: the run has begun, so its trace stays if the owner does not hold the lock
--
-- reply    1; 0 if there is nothing to remove, or it must stay
local owner, begun = unpack(ARGV)
if begun == '1' and not held(owner) then
    return 0
end
local s = redis.call('hmget', KEYS[1], 'owner', 'result')
if s[1] ~= owner or s[2] then
    return 0
end
return redis.call('del', KEYS[1])
