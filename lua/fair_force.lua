-- Removes a fair lock whoever holds it, and grants it to the next. Like force.lua
-- it must not be repeated blindly.
--
-- KEYS[4]  fencing counter; only for a fenced lock
-- ARGV[6]  unlock channel, for those who do not queue
--
-- reply    {1}              removed
--          {0}              it was free
--          {-1, key, type}  key belongs to something that is not a lock
local what = kind(KEYS[1])
if what ~= 'none' and what ~= 'lock' then
    return {-1, KEYS[1], what}
end
if redis.call('del', KEYS[1]) == 0 then
    return {0}
end
if not advance(KEYS[4]) then
    announce(ARGV[3], ARGV[6], '0')
end
return {1}
