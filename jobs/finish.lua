-- Notes a fire as finished, if its host still holds the lock.
--
-- KEYS[1]  companion of the job's lock
-- KEYS[2]  lock
-- ARGV[1]  fire
-- ARGV[2]  owner
-- ARGV[3]  fire after it; 0: none
-- ARGV[4]  ms for which the note is kept
--
-- reply    {0 the owner does not hold the lock, 1; server's time; newest fire before; the one after that}
local time, old = now(), redis.call('hmget', KEYS[1], 'fire', 'next')
local fire, outcome = tonumber(old[1] or 0), 0
if held(ARGV[2]) then
    outcome = 1
    if fire < tonumber(ARGV[1]) then
        redis.call('hset', KEYS[1], 'is', 'fire', 'fire', ARGV[1], 'next', ARGV[3], 'by', ARGV[2])
        redis.call('pexpire', KEYS[1], ARGV[4])
    end
end
return {outcome, time, fire, tonumber(old[2] or 0)}
