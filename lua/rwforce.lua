-- Removes a read/write lock of any owner, and a writer's intent, and wakes all waiters. The
-- script names no owner, and must not be repeated blindly.
--
-- KEYS[1]  lock
-- KEYS     writer's intent: for servers that want it declared; not while the slot of a
--          cluster moves
-- ARGV[1]  PUBLISH, SPUBLISH, or both
-- ARGV[2]  channel
-- ARGV[3]  writer's intent
--
-- reply    {1}              removed
--          {0}              the lock was free
--          {-1, key, type}  the key is no read/write lock
local mode = look(KEYS[1], '')
if stranger(mode) then
    return {-1, KEYS[1], mode}
end
local removed = redis.call('del', KEYS[1])
if retract(ARGV[3]) or removed > 0 then
    announce(ARGV[1], ARGV[2], '1')
end
return {removed}
